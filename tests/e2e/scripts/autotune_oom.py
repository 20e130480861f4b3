"""Prints some steps and a given log, then nothing any more; its worker threads wait for ever.

The threads named by --dead end when the log has been printed, as the targets whose tracebacks stand
in it did; the others wait on a queue that nobody fills.
"""

import argparse
import queue
import threading
import time
from pathlib import Path


def worker(work, ends):
    while True:
        item = work.get()
        if item is ends:
            return


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--log", type=Path, required=True, help="text to print")
    parser.add_argument("--lines-per-s", type=float, default=50.0)
    parser.add_argument("--steps", type=int, default=0, help="step lines before that text")
    parser.add_argument("--step-s", type=float, default=0.1)
    parser.add_argument("--targets", type=int, default=3)
    parser.add_argument("--drafters", type=int, default=2)
    parser.add_argument("--dead", default="target-1,target-2", help="threads that end")
    parser.add_argument("--hold-s", type=float, default=0.0, help="end after so long; 0 never")
    args = parser.parse_args()

    ends = object()
    names = [f"target-{i}" for i in range(args.targets)]
    names += [f"drafter-{i}" for i in range(args.drafters)]
    queues = {name: queue.Queue() for name in names}
    for name in names:
        threading.Thread(
            target=worker, args=(queues[name], ends), name=name, daemon=args.hold_s > 0
        ).start()
    for step in range(1, args.steps + 1):
        time.sleep(args.step_s)
        print(f"step {step} loss 2.5 tok/s 12000", flush=True)
    for line in args.log.read_text(encoding="utf-8", errors="replace").splitlines():
        print(line, flush=True)
        time.sleep(1 / args.lines_per_s)
    for name in args.dead.split(","):
        if name in queues:
            queues[name].put(ends)
    if args.hold_s:
        time.sleep(args.hold_s)
    else:
        threading.Event().wait()


if __name__ == "__main__":
    main()
