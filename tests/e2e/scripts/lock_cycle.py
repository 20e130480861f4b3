"""Two drafter threads take the same two locks in opposite order and wait for each other for ever.

Until the given step both take them in the same order. A target goes on feeding the queue until it
is full.
"""

import argparse
import queue
import threading
import time

weights_lock, cache_lock = threading.Lock(), threading.Lock()
both_start, both_hold_one = threading.Barrier(2), threading.Barrier(2)


def update(first, second, meet):
    if meet:
        both_start.wait()
    with first:
        if meet:
            both_hold_one.wait()
        with second:
            pass


def drafter(index, args, batches):
    for _ in range(args.steps):
        step = batches.get()
        time.sleep(args.step_s)
        crossed = step >= args.at_step
        if crossed and index == 1:
            update(cache_lock, weights_lock, meet=True)
        else:
            update(weights_lock, cache_lock, meet=crossed)
        print(f"step {step} loss {2 + 1 / (step + 1):.4f} (drafter-{index})", flush=True)


def target(args, batches):
    for step in range(args.steps):
        batches[step % 2].put(step)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--step-s", type=float, default=0.05)
    parser.add_argument("--at-step", type=int, default=100)
    args = parser.parse_args()

    batches = [queue.Queue(4), queue.Queue(4)]
    threads = [threading.Thread(target=target, args=(args, batches), name="target-0")]
    threads += [
        threading.Thread(target=drafter, args=(i, args, batches[i]), name=f"drafter-{i}")
        for i in range(2)
    ]
    for thread in threads:
        thread.daemon = True
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
