"""A worker thread makes a C call that keeps the interpreter lock: no other thread runs again.

asleep: libc's sleep through ctypes.PyDLL, which does not release the lock: no CPU time is used.
busy:   a regular expression that backtracks without end: one core is used up.
"""

import argparse
import ctypes
import queue
import re
import threading
import time


def hold(how, seconds):
    if how == "asleep":
        ctypes.PyDLL(None).sleep(int(seconds))
    else:
        re.match(r"(a+)+$", "a" * 64 + "b")


def tokenizer(args, batches):
    for number in range(args.steps):
        if number == args.at_step:
            hold(args.how, args.seconds)
        batches.put(number)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--how", choices=["busy", "asleep"], required=True)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--step-s", type=float, default=0.05)
    parser.add_argument("--at-step", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=100_000, help="asleep: how long")
    args = parser.parse_args()

    batches = queue.Queue(2)
    threading.Thread(
        target=tokenizer, args=(args, batches), name="tokenizer-0", daemon=True
    ).start()
    for step in range(args.steps):
        batches.get()
        time.sleep(args.step_s)
        print(f"step {step} loss {2 + 1 / (step + 1):.4f} tok/s 8000", flush=True)
    print("training finished", flush=True)


if __name__ == "__main__":
    main()
