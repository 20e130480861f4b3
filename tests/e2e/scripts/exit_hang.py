"""Trains, says that it is done, and never ends: a thread that is no daemon waits for ever."""

import argparse
import threading
import time


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--step-s", type=float, default=0.1)
    parser.add_argument("--hang-s", type=float, default=0.0, help="end after so long; 0 never")
    args = parser.parse_args()

    release = threading.Event()
    threading.Thread(target=release.wait, args=(args.hang_s or None,), name="uploader").start()
    for step in range(1, args.steps + 1):
        time.sleep(args.step_s)
        print(f"step {step}/{args.steps} loss {2 + 1 / step:.4f} tok/s 9000", flush=True)
    print("saved final checkpoint to out/final.pt", flush=True)
    print("training finished", flush=True)


if __name__ == "__main__":
    main()
