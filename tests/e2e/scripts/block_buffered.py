"""A healthy loop whose log comes in blocks: printed lines lie in the program's own buffer.

The buffer is made here, of a size given, so that PYTHONUNBUFFERED in the caller's shell changes
nothing. Each step computes; a checkpoint file is written now and then.
"""

import argparse
import io
import time
from pathlib import Path


def work(seconds):
    begin = time.monotonic()
    number = 1
    while time.monotonic() - begin < seconds / 2:
        number = (number * 1103515245 + 12345) % 2**31
    time.sleep(seconds / 2)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--step-s", type=float, default=0.1)
    parser.add_argument("--buffer-bytes", type=int, default=8192)
    parser.add_argument("--flush-until", type=int, default=0, help="flush each step until this one")
    parser.add_argument("--checkpoint", type=Path, help="file written every 20 steps")
    args = parser.parse_args()

    raw = io.FileIO(1, "w", closefd=False)
    out = io.TextIOWrapper(io.BufferedWriter(raw, args.buffer_bytes), encoding="utf-8")
    for step in range(1, args.steps + 1):
        work(args.step_s)
        print(f"step {step}/{args.steps} loss {2 + 1 / step:.4f} tok/s 9000", file=out)
        if step <= args.flush_until:
            out.flush()
        if args.checkpoint and step % 20 == 0:
            args.checkpoint.write_bytes(b"w" * 65536)
    print("training finished", file=out)
    out.flush()


if __name__ == "__main__":
    main()
