"""Tokens a second with and without emission, switched by turns within one run.

    PYTHONPATH=dflash python tests/bench/bench_emission.py [--windows 40] [--steps 10]

Two runs of the same training differ by more than a tenth on a shared machine, so both sides live in
one run: windows of a few steps, beats, waits, events and ticker on in every other one. Compared are
neighbours. Wall time says what a user sees; CPU time of the process is what other programs on the
machine disturb least. Neither resolves a thousandth on a busy machine, so the CPU time spent inside
the emitting calls and in their two threads is taken as well, with the cost of taking it: what is
left of the whole is the ratio, from below. The target is at least 0.995 (docs/benchmarks.md).
"""

import argparse
import contextlib
import itertools
import logging
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "dflash"))

import torch  # noqa: E402 - runs from a checkout, without installing
from dflash_events import RunWriter, Worker  # noqa: E402
from dflash_events.ticker import Ticker  # noqa: E402
from dflash_events.worker import Waiting  # noqa: E402
from dflash_train.materials import make_untaught  # noqa: E402
from dflash_train.pipeline import ThreadPipeline, build_line  # noqa: E402
from dflash_train.report import Reporter  # noqa: E402
from dflash_train.settings import resolve  # noqa: E402
from dflash_train.stop import StopRequest  # noqa: E402

NOTHING = contextlib.nullcontext()
SILENT = {
    "beat": lambda *_, **__: None,
    "waiting": lambda *_, **__: NOTHING,
    "waits_on": lambda *_, **__: None,
    "queue": lambda *_, **__: None,
}


class Meter:
    """CPU time inside emitting calls, ns, and in the threads that emission brings."""

    CALLS = (
        (Worker, ("beat", "waiting", "waits_on", "queue")),
        (Waiting, ("__enter__", "__exit__")),
        (RunWriter, ("throughput",)),
    )
    THREADS = ("dflash-events", "dflash-ticker")

    def __init__(self):
        self.calls_ns, self.lock = 0, threading.Lock()
        for kind, names in self.CALLS:
            for name in names:
                setattr(kind, name, self.metered(getattr(kind, name)))

    def metered(self, method):
        def call(*args, **keys):
            begin = time.thread_time_ns()
            try:
                return method(*args, **keys)
            finally:
                with self.lock:
                    self.calls_ns += time.thread_time_ns() - begin

        return call

    def threads(self):
        """CPU seconds of each of its threads so far."""
        return {
            thread.ident: time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
            for thread in threading.enumerate()
            if thread.name in self.THREADS
        }


class Switch:
    """Turns everything that is emitted while training on and off."""

    def __init__(self, writer):
        self.writer, self.loud = writer, {name: getattr(Worker, name) for name in SILENT}

    def set(self, is_on):
        for name, method in (self.loud if is_on else SILENT).items():
            setattr(Worker, name, method)
        if is_on:
            self.writer.__dict__.pop("throughput", None)
            self.writer._ticker = Ticker(self.writer.page)
            self.writer._ticker.start()
        else:
            self.writer.throughput = lambda **_: None
            self.writer._ticker.stop()


class Alternating(Reporter):
    """Measures windows of steps and turns the switch between them."""

    def prepare(self, switch, steps):
        self.switch, self.steps, self.windows = switch, steps, []
        self.is_on, self.left, self.tokens = True, 3 * steps, 0
        self.start, self.meter = None, None

    def on_step(self, done, sums, parcels, queue):
        super().on_step(done, sums, parcels, queue)
        self.tokens += sum(parcel.num_tokens for parcel in parcels)
        self.left -= 1
        if self.left:
            return
        now = (time.perf_counter(), time.process_time())
        if self.start is not None:
            wall, cpu = now[0] - self.start[0], now[1] - self.start[1]
            share = self.spent_s() / cpu if self.is_on and self.meter else 0.0
            self.windows.append((self.is_on, self.tokens / wall, self.tokens / cpu, 1 - share))
        self.is_on = not self.is_on
        self.switch.set(self.is_on)
        self.left, self.tokens = self.steps, 0
        self.start = (time.perf_counter(), time.process_time())
        if self.meter:
            self.begun = (self.meter.calls_ns, self.meter.threads())

    def spent_s(self):
        """CPU seconds of emission in this window."""
        calls_ns, threads = self.begun
        now = self.meter.threads()
        own = sum(seconds - threads.get(ident, 0.0) for ident, seconds in now.items())
        return (self.meter.calls_ns - calls_ns) / 1e9 + own


def measure(windows, steps, meter=None):
    """List of (is_on, tokens per wall second, tokens per CPU second, share left to the work)."""
    torch.set_num_threads(1)
    logging.getLogger("dflash_train").setLevel(logging.ERROR)
    config = resolve(
        "tiny",
        None,
        [
            "data.buckets=128",
            "data.min_length=128",
            f"optim.steps={(windows + 4) * steps}",
            "checkpoint.every_steps=0",
        ],
    )
    with tempfile.TemporaryDirectory() as folder, RunWriter(folder) as writer:
        reporter = Alternating(config, writer, 0, show_bar=False)
        reporter.prepare(Switch(writer), steps)
        reporter.meter = meter
        stop = StopRequest()
        line = build_line(config, Path(folder), make_untaught(config), None, writer, reporter, stop)
        ThreadPipeline(line, stop, lambda: None).run(writer.worker("main", role="main"))
        reporter.switch.set(True)
    return reporter.windows


def ratios(windows, column):
    """on / off of each pair of neighbours."""
    found = []
    for one, other in itertools.pairwise(windows):
        on, off = (one, other) if one[0] else (other, one)
        found.append(on[column] / off[column])
    return found


def median_within(values):
    """Bounds that hold the true median 95 times of 100; neighbours share a window: half count."""
    half = 1.96 * (len(values) / 2) ** 0.5
    middle = len(values) / 2
    ordered = sorted(values)
    low, high = max(int(middle - half), 0), min(int(middle + half), len(values) - 1)
    return ordered[low], ordered[high]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--windows", type=int, default=60)
    parser.add_argument("--steps", type=int, default=10)
    given = parser.parse_args()
    windows = measure(given.windows, given.steps)
    metered = measure(max(given.windows // 4, 10), given.steps, Meter())
    print(f"{len(windows)} windows of {given.steps} steps, every other one without emission")
    print(f"{'':24}{'median':>9}{'95 % within':>18}")
    for name, column in (("tokens/s, wall", 1), ("tokens per CPU second", 2)):
        values = ratios(windows, column)
        (low, high), middle = median_within(values), statistics.median(values)
        print(f"{name:24}{middle:9.4f}{low:9.4f}{high:9.4f}   with / without, target >= 0.995")
        for is_on in (True, False):
            rates = [w[column] for w in windows if w[0] is is_on]
            print(f"  {'with' if is_on else 'without':22}{statistics.median(rates):9.0f}")
    left = statistics.mean(window[3] for window in metered if window[0])
    print(f"{'by its own CPU time':24}{left:9.4f}   of the whole is left to the work")


if __name__ == "__main__":
    main()
