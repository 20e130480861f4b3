"""Trains and ends in an error: an uncaught exception (status 1), abort (SIGABRT) or SIGKILL."""

import argparse
import os
import signal
import time


def forward(step, at_step, how):
    if step < at_step:
        return 2 + 1 / step
    if how == "abort":
        os.abort()
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    raise RuntimeError("The size of tensor a (4096) must match the size of tensor b (2560)")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--how", choices=["exception", "abort", "kill"], default="exception")
    parser.add_argument("--at-step", type=int, default=100)
    parser.add_argument("--step-s", type=float, default=0.1)
    args = parser.parse_args()

    step = 0
    while True:
        step += 1
        loss = forward(step, args.at_step, args.how)
        time.sleep(args.step_s)
        print(f"step {step} loss {loss:.4f} tok/s 9000", flush=True)


if __name__ == "__main__":
    main()
