"""A long quiet start, as of imports and a compiler: computes and has a busy child, then trains."""

import argparse
import subprocess
import sys
import time

SPIN = """
import sys, time
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    sum(range(5000))
"""


def compile_quietly(seconds, share):
    """Most of the time in a child, as a compiler would; a little here, as tracing would."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        left = end - time.monotonic()
        subprocess.run([sys.executable, "-c", SPIN, str(min(left, 2.0))], check=True)
        begin = time.monotonic()
        while time.monotonic() - begin < min(share, left):
            sum(range(5000))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quiet-s", type=float, default=30.0)
    parser.add_argument("--say", default="Compiling model, this can take a while...")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--step-s", type=float, default=0.1)
    args = parser.parse_args()

    if args.say:
        print(args.say, flush=True)
    compile_quietly(args.quiet_s, 0.5)
    for step in range(1, args.steps + 1):
        time.sleep(args.step_s)
        print(f"step {step}/{args.steps} loss {2 + 1 / step:.4f} tok/s 9000", flush=True)
    print("training finished", flush=True)


if __name__ == "__main__":
    main()
