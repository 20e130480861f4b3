"""Targets feed drafters through one queue, in order; a target swallows its exception and is gone.

At the given step the target named by --fail ends without a word (or, with --print-traceback, with
the traceback printed and nothing else done). Batches are delivered in order, so the other targets
wait for a turn that never comes, the queue runs dry and the drafters wait. Nobody ends.
"""

import argparse
import queue
import sys
import threading
import time
import traceback


class Turns:
    """Whose batch is next."""

    def __init__(self):
        self.next = 0
        self.changed = threading.Condition()

    def put_in_order(self, number, batch, into):
        with self.changed:
            while self.next != number:
                self.changed.wait()
        into.put(batch)
        with self.changed:
            self.next += 1
            self.changed.notify_all()


def forward(batch, step_s, fails):
    """Stands for a target's forward pass."""
    time.sleep(step_s)
    if fails:
        raise RuntimeError("Triton Error [CUDA]: out of memory")
    return [batch] * 16


def target(index, args, turns, hidden_states):
    name = threading.current_thread().name
    for number in range(index, args.steps, args.targets):
        fails = name == args.fail and number >= args.at_step
        try:
            states = forward(number, args.step_s, fails)
        except Exception:  # noqa: BLE001 - the mistake that this program shows
            if args.print_traceback:
                traceback.print_exc()
                sys.stderr.flush()
            return
        turns.put_in_order(number, states, hidden_states)


def drafter(index, args, hidden_states):
    del index
    while True:
        states = hidden_states.get()
        if states is None:
            return
        time.sleep(args.step_s)
        step, depth = states[0], hidden_states.qsize()
        print(
            f"step={step} loss={2.0 + 1.0 / (step + 1):.4f} tok/s={4096 / args.step_s:.0f} "
            f"queue={depth}/{args.depth}",
            flush=True,
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--targets", type=int, default=2)
    parser.add_argument("--drafters", type=int, default=2)
    parser.add_argument("--depth", type=int, default=8)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--step-s", type=float, default=0.05)
    parser.add_argument("--fail", default="target-1", help="name of the thread; none: nobody")
    parser.add_argument("--at-step", type=int, default=100)
    parser.add_argument("--print-traceback", action="store_true")
    args = parser.parse_args()

    hidden_states, turns = queue.Queue(args.depth), Turns()
    targets = [
        threading.Thread(target=target, args=(i, args, turns, hidden_states), name=f"target-{i}")
        for i in range(args.targets)
    ]
    drafters = [
        threading.Thread(target=drafter, args=(i, args, hidden_states), name=f"drafter-{i}")
        for i in range(args.drafters)
    ]
    print(f"pipeline of {args.targets} targets and {args.drafters} drafters", flush=True)
    for thread in targets + drafters:
        thread.start()
    for thread in targets:
        thread.join()
    for _ in drafters:
        hidden_states.put(None)
    for thread in drafters:
        thread.join()
    print("training finished", flush=True)


if __name__ == "__main__":
    main()
