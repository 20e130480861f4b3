"""No training at all: keeps every core busy for a while, so that others have to wait for theirs."""

import argparse
import os
import signal
import subprocess
import sys
import threading

SPIN = """
import sys, time
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    sum(range(5000))
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--processes", type=int, default=2 * (os.cpu_count() or 1))
    args = parser.parse_args()

    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    children = [
        subprocess.Popen([sys.executable, "-c", SPIN, str(args.seconds)])
        for _ in range(args.processes)
    ]
    print(f"{len(children)} processes busy for {args.seconds:.0f} s", flush=True)
    stop.wait(args.seconds)
    for child in children:
        child.kill()
        child.wait()


if __name__ == "__main__":
    main()
