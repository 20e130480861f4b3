"""An hour of every figure that may explain a change of speed, in the buckets of the throughput.

When throughput shifts from one level to another, the moment is found here (CUSUM about the median,
then a comparison of the two sides), and which other figures shifted with it.
"""

from __future__ import annotations

import itertools
import statistics
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dflash_watch.frame import Frame
from dflash_watch.window.speed import BUCKET_S, BUCKETS, Bucket, Throughput

LEAST_SIDE = 4
"""Buckets on each side of a change: one minute."""
SIDE = 20
"""Buckets on each side that are compared: older shifts must not blur this one."""
WARM_UP = 2
"""First buckets left out: the first steps are slow."""
SHIFT, SPREADS = 0.1, 4.0
"""A change is at least a tenth, and so many usual deviations: lengths vary from step to step."""
MOVED, MOVED_SPREADS = 0.15, 3.0
"""The same for figures that may have moved along."""
NEAR = 8
"""Buckets on each side that are compared for those."""
GPU_FIGURES = (
    ("GPU use", "utilization_ratio"), ("SM use", "sm_ratio"), ("GPU power (W)", "power_watts"),
    ("GPU clock (MHz)", "sm_clock_mhz"), ("GPU memory (bytes)", "memory_used_bytes"),
    ("GPU temperature (C)", "temperature_celsius"),
)  # fmt: skip
HOST_FIGURES = (
    ("processor use of the machine", "cpu_busy_ratio"), ("load", "load1"),
    ("free host memory (bytes)", "memory_available_bytes"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Change:
    """One shift of the level."""

    t: float
    before: float
    after: float
    num_before: int
    """Buckets of the level before that were looked at."""
    num_after: int
    spread: float
    """Usual deviation on either side, the larger of the two."""


@dataclass(slots=True)
class Series:
    """One figure: sums of what was read, a bucket each."""

    buckets: deque[tuple[float, float, int]] = field(default_factory=lambda: deque(maxlen=BUCKETS))
    """(begin, sum, count)."""

    def take(self, t: float, value: float) -> None:
        """Take one reading."""
        start_t = t - t % BUCKET_S
        if self.buckets and self.buckets[-1][0] == start_t:
            _, total, count = self.buckets[-1]
            self.buckets[-1] = (start_t, total + value, count + 1)
        else:
            self.buckets.append((start_t, value, 1))

    def means(self, begin_t: float, end_t: float) -> list[float]:
        """Bucket means of a span."""
        return [total / count for t, total, count in self.buckets if begin_t <= t < end_t]


class Past:
    """All such figures of one run."""

    def __init__(self) -> None:
        self.series: dict[str, Series] = {}
        self.edges: deque[tuple[float, str]] = deque(maxlen=50)
        """Moments of phases, tunings and checkpoints."""
        self._changes: dict[int, tuple[float, Change | None]] = {}
        self._before: tuple[int, int] | None = None

    def take(
        self,
        frame: Frame,
        cores: float | None,
        events: Iterable[Mapping[str, Any]],
        used: Collection[int] | None = None,
    ) -> None:
        """Take one frame.

        Args:
            frame: of this moment.
            cores: that the run uses.
            events: new ones of the run itself.
            used: cards of the run; None: all.
        """
        cards = [
            card
            for card in frame.gpus or ()
            if card.state == "ok" and (used is None or card.index in used)
        ]
        for name, key in GPU_FIGURES:
            known = [value for card in cards if (value := getattr(card, key)) is not None]
            if known:
                self._put(name, frame.t, statistics.fmean(known))
        for name, key in HOST_FIGURES:
            value = getattr(frame.host, key, None)
            if value is not None:
                self._put(name, frame.t, float(value))
        if cores is not None:
            self._put("processor cores of the run", frame.t, cores)
        if frame.beats is not None and frame.beats.ticker is not None:
            self._put("lateness of its threads (s)", frame.t, frame.beats.ticker.late_s)
        for event in events:
            self._take_event(event)

    def _take_event(self, event: Mapping[str, Any]) -> None:
        t, kind = float(event["t"]), event.get("kind")
        if kind == "phase" and event.get("name") != "training":
            self.edges.append((t, f"{event.get('name')} ({event.get('edge')})"))
        elif kind in {"autotune", "checkpoint"}:
            self.edges.append((t, str(kind)))
        if kind != "throughput":
            return
        step, tokens = event.get("step"), event.get("tokens_total")
        if isinstance(step, int) and isinstance(tokens, int):
            if self._before is not None and step > self._before[0]:
                each = (tokens - self._before[1]) / (step - self._before[0])
                self._put("tokens a step", t, each)
            self._before = (step, tokens)
        for reason in ("queue-get", "queue-put"):
            waits = [
                shares.get(reason, 0.0)
                for shares in (event.get("wait_shares") or {}).values()
                if isinstance(shares, dict)
            ]
            if waits:
                self._put(f"share of waiting ({reason})", t, statistics.fmean(waits))

    def _put(self, name: str, t: float, value: float) -> None:
        self.series.setdefault(name, Series()).take(t, value)

    def change(self, speed: Throughput) -> Change | None:
        """The newest shift of this figure; looked for once a bucket."""
        newest_t = speed.buckets[-1].start_t if speed.buckets else 0.0
        known = self._changes.get(id(speed))
        if known is None or known[0] != newest_t:
            known = (newest_t, find_change(list(speed.buckets)[:-1]))
            self._changes = {id(speed): known}
        return known[1]

    def moved_at(self, t: float) -> list[str]:
        """Figures that shifted at that moment, the largest shift first, and what began or ended."""
        found = []
        for name, series in self.series.items():
            before = series.means(t - NEAR * BUCKET_S, t)
            after = series.means(t, t + NEAR * BUCKET_S)
            if len(before) < LEAST_SIDE or len(after) < LEAST_SIDE:
                continue
            a, b = statistics.median(before), statistics.median(after)
            spread = max(_spread(before), _spread(after))
            share = abs(b - a) / max(abs(a), abs(b), 1e-9)
            if share >= MOVED and abs(b - a) >= MOVED_SPREADS * spread:
                found.append((share, f"{name} {_short(a)} -> {_short(b)}"))
        told = [text for _, text in sorted(found, reverse=True)]
        near = [text for at, text in self.edges if abs(at - t) <= 2 * BUCKET_S]
        return told + list(dict.fromkeys(near))


def find_change(buckets: Sequence[Bucket]) -> Change | None:
    """The newest shift between two levels, or None while there is one level only."""
    rest, found = buckets[WARM_UP:], None
    while True:
        change, at = _first_change(rest)
        if change is None:
            return found
        found, rest = change, rest[at:]


def _first_change(buckets: Sequence[Bucket]) -> tuple[Change | None, int]:
    values = [bucket.mean for bucket in buckets]
    if len(values) < 2 * LEAST_SIDE:
        return None, 0
    middle = statistics.fmean(values)
    sums = list(itertools.accumulate(value - middle for value in values))
    inner = range(LEAST_SIDE, len(values) - LEAST_SIDE + 1)
    at = max(inner, key=lambda i: abs(sums[i - 1]))
    before, after = values[:at][-SIDE:], values[at:][:SIDE]
    a, b = statistics.median(before), statistics.median(after)
    spread = max(_spread(before), _spread(after))
    if a <= 0 or abs(b - a) < max(SHIFT * a, SPREADS * spread):
        return None, 0
    return Change(buckets[at].start_t, a, b, len(before), len(after), spread), at


def _spread(values: Sequence[float]) -> float:
    """Usual deviation: 1.48 x the median distance from the median."""
    middle = statistics.median(values)
    return 1.4826 * statistics.median(abs(value - middle) for value in values)


def _short(value: float) -> str:
    if abs(value) >= 2**30:
        return f"{value / 2**30:.1f} Gi"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
