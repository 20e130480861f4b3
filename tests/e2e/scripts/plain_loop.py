"""A healthy training loop: one line a step, ends by itself with exit status 0."""

import argparse
import math
import time


def work(seconds, busy_ratio):
    """Compute for a share of the step, wait (as for a device) for the rest."""
    begin = time.monotonic()
    number = 1
    while time.monotonic() - begin < seconds * busy_ratio:
        number = (number * 1103515245 + 12345) % 2**31
    time.sleep(max(begin + seconds - time.monotonic(), 0))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--step-s", type=float, default=0.1)
    parser.add_argument("--busy-ratio", type=float, default=0.3)
    parser.add_argument("--tokens", type=int, default=4096, help="tokens a step")
    args = parser.parse_args()

    print(f"starting training: {args.steps} steps of {args.tokens} tokens", flush=True)
    began = time.monotonic()
    for step in range(1, args.steps + 1):
        step_began = time.monotonic()
        work(args.step_s, args.busy_ratio)
        speed = args.tokens / (time.monotonic() - step_began)
        loss = 0.5 + 6 * math.exp(-step / 80)
        print(f"step {step}/{args.steps} loss {loss:.4f} tok/s {speed:.0f} lr 3.0e-04", flush=True)
    print(f"training finished in {time.monotonic() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main()
