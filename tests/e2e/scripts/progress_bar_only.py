"""A healthy loop that shows nothing but one bar, redrawn with \\r: its log has no line end."""

import argparse
import sys
import time


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--step-s", type=float, default=0.1)
    args = parser.parse_args()

    began = time.monotonic()
    for step in range(args.steps + 1):
        elapsed = time.monotonic() - began
        rate = step / elapsed if step else 0.0
        cells = step * 10 // args.steps
        sys.stderr.write(
            f"\rTraining: {step / args.steps:4.0%}|{'█' * cells}{' ' * (10 - cells)}| "
            f"{step}/{args.steps} [{int(elapsed) // 60:02d}:{int(elapsed) % 60:02d}, "
            f"{rate:.2f}it/s, loss={2 + 1 / (step + 1):.3f}]"
        )
        sys.stderr.flush()
        time.sleep(args.step_s)


if __name__ == "__main__":
    main()
