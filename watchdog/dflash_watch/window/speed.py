"""Speed over time: an hour in coarse buckets, the newest minutes in fine ones."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

BUCKET_S = 15.0
BUCKETS = 240
"""One hour of throughput."""
FINE_S = 1.0
FINE_WINDOW_S = 300.0
"""A plot of five minutes has a point for about every dot column."""
PACE_OVER_S = 5.0
"""Steps a second are counted over so long: a look at a log sees one or three, not two and a bit."""
APART_S = 0.9
"""Looks that are less far apart say nothing about speed."""


@dataclass(slots=True)
class Bucket:
    """Speed over a short span: lowest, highest and mean of what was said."""

    start_t: float
    low: float
    high: float
    total: float
    count: int = 1

    @property
    def mean(self) -> float:
        """Mean of what was said within it."""
        return self.total / self.count


def _put(buckets: deque[Bucket], start_t: float, value: float) -> None:
    last = buckets[-1] if buckets else None
    if last is not None and start_t <= last.start_t:
        last.low, last.high = min(last.low, value), max(last.high, value)
        last.total, last.count = last.total + value, last.count + 1
    else:
        buckets.append(Bucket(start_t, value, value, value))


def _fine_buckets() -> deque[Bucket]:
    return deque(maxlen=int(FINE_WINDOW_S / FINE_S) + 1)


@dataclass(slots=True)
class Throughput:
    """One figure (tokens or steps a second) thinned to buckets."""

    buckets: deque[Bucket] = field(default_factory=lambda: deque(maxlen=BUCKETS))
    fine: deque[Bucket] = field(default_factory=_fine_buckets)
    """Only spans in which something was said."""
    newest: float | None = None
    newest_t: float | None = None

    def take(self, t: float, value: float) -> None:
        """Take one figure."""
        self.newest, self.newest_t = value, t
        _put(self.buckets, t - t % BUCKET_S, value)
        _put(self.fine, t - t % FINE_S, value)

    def mean(self, since_t: float) -> float | None:
        """Mean since then, by what was said."""
        chosen = [bucket for bucket in self.buckets if bucket.start_t + BUCKET_S > since_t]
        count = sum(bucket.count for bucket in chosen)
        return sum(bucket.total for bucket in chosen) / count if count else None


class StepPace:
    """Steps a second, from a counter that is seen now and then."""

    def __init__(self) -> None:
        self.speed = Throughput()
        self._marks: deque[tuple[float, int]] = deque()

    def take(self, t: float, step: int) -> None:
        """The counter stood there at that moment; one that went down counts anew."""
        marks = self._marks
        if marks and step < marks[-1][1]:
            marks.clear()
        if marks and t - marks[-1][0] < APART_S:
            if t <= marks[-1][0]:  # steps that are seen at one moment were made before it
                marks[-1] = (marks[-1][0], step)
            return
        marks.append((t, step))
        while len(marks) > 2 and t - marks[1][0] >= PACE_OVER_S:
            marks.popleft()
        seconds, steps = t - marks[0][0], step - marks[0][1]
        if steps > 0 and seconds > 0:
            self.speed.take(t, steps / seconds)
