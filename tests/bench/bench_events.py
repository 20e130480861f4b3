"""What a run pays for being visible: CPU time of a beat, a wait, an event, the ticker.

    PYTHONPATH=dflash python tests/bench/bench_events.py

CPU time of all threads of the process (the writer's thread included), best of some rounds: other
programs on the machine make a round slower, never faster. Limits are those of docs/benchmarks.md.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "dflash"))

from dflash_events import RunWriter  # noqa: E402 - runs from a checkout, without installing

ROUNDS = 7
WAIT_SHARES = {f"target-{i}": {"queue-put": 0.25, "device": 0.5} for i in range(5)}
MEMORY = [
    {"device": f"cuda:{i}", "allocated_bytes": 7 * 10**10, "reserved_bytes": 8 * 10**10}
    for i in range(8)
]


def cpu_ns_each(count, act, settle=lambda: None):
    """Least CPU time of one `act()`, ns, over the rounds; `settle` is part of a round."""
    best = float("inf")
    for _ in range(ROUNDS):
        begin = time.process_time_ns()
        for _ in range(count):
            act()
        settle()
        best = min(best, (time.process_time_ns() - begin) / count)
    return best


def measure(run_dir):
    """Rows of (what, microseconds, limit in microseconds or None)."""
    with RunWriter(run_dir, every_s=3600) as writer:
        worker = writer.worker("target-0", role="target", device="cuda:0")
        events = run_dir / "events.jsonl"

        def wait_once():
            with worker.waiting("queue-get", object="hs-queue", on="target-0"):
                pass

        def written():
            """Until the writer's thread has written all of it, without using CPU time here."""
            size = -1
            while events.stat().st_size != size:
                size = events.stat().st_size
                time.sleep(0.05)

        rows = [
            ("beat(step)", cpu_ns_each(50_000, lambda: worker.beat(7)), 1.0),
            ("beat()", cpu_ns_each(50_000, worker.beat), 1.0),
            ("with waiting(...)", cpu_ns_each(20_000, wait_once), None),
            ("queue(depth, capacity)", cpu_ns_each(20_000, lambda: worker.queue(3, 60)), None),
        ]
        small = cpu_ns_each(
            1000,
            lambda: writer.checkpoint(step=9, path="checkpoints/9", seconds=1.5, bytes=10**9),
            written,
        )
        large = cpu_ns_each(
            1000,
            lambda: writer.throughput(
                step=9,
                tokens_per_s=14200.5,
                loss=2.31,
                lr=3e-4,
                wait_shares=WAIT_SHARES,
                memory=MEMORY,
            ),
            written,
        )
        rows += [
            ("small event (checkpoint)", small, 15.0),
            ("largest event (throughput, 8 GPUs)", large, None),
        ]
        begin_cpu, begin = time.process_time_ns(), time.monotonic_ns()
        time.sleep(2)
        share = (time.process_time_ns() - begin_cpu) / (time.monotonic_ns() - begin)
        lost = writer.trouble()
    if lost:
        raise SystemExit(f"events were lost, the figures mean nothing: {lost}")
    return [(what, ns / 1000, limit) for what, ns, limit in rows], share


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one object, for a machine")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows, share = measure(Path(folder) / "run")
    if args.json:
        figures = {what: us for what, us, _ in rows}
        print(json.dumps({"us_of_cpu": figures, "idle_cpu_ratio": share}))
        return
    print(f"{'what':38} {'us of CPU':>10} {'limit':>8}")
    for what, us, limit in rows:
        print(f"{what:38} {us:10.2f} {limit if limit else '-':>8}")
    print(f"{'ticker and writer, idle':38} {share:10.3%} of a core")


if __name__ == "__main__":
    main()
