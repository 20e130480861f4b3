"""Memory over the last half hour: of the run's own processes, and in use on each GPU."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from dflash_watch.frame import Frame, ProcessSample

EVERY_S = 3.0
KEPT = 620
"""Half an hour and a little."""
SEGMENTS = 6
EVEN = 0.4
"""Each sixth of a climb adds at least so much of the mean: what levels off does not."""
RISES = 12
"""A climb has at least so many steps up: new shapes that each add once are fewer."""


@dataclass(frozen=True, slots=True)
class Climb:
    """Memory that rises evenly."""

    begin_t: float
    from_bytes: int
    to_bytes: int
    over_s: float

    @property
    def bytes_per_s(self) -> float:
        """Mean pace."""
        return (self.to_bytes - self.from_bytes) / self.over_s


@dataclass(slots=True)
class Level:
    """One figure, its lowest value of every few seconds."""

    values: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=KEPT))
    """(begin of the span, bytes)."""
    closed: int = 0
    """Spans so far: what was read of the past stays true until the next one closes."""
    _read: dict[float, tuple[int, float, Climb | None]] = field(default_factory=dict)

    def take(self, t: float, held: int) -> None:
        """Take one look."""
        start_t = t - t % EVERY_S
        if self.values and self.values[-1][0] == start_t:
            self.values[-1] = (start_t, min(self.values[-1][1], held))
        else:
            self.values.append((start_t, held))
            self.closed += 1

    def climb(self, since_t: float, over_s: float) -> Climb | None:
        """Does it rise evenly through the whole of the newest `over_s` seconds?

        Args:
            since_t: what was before does not count.
            over_s: length looked at.
        """
        known = self._read.get(over_s)
        if known is None or known[:2] != (self.closed, since_t):
            found = self._look(since_t, over_s)
            known = self._read[over_s] = (self.closed, since_t, found)
        return known[2]

    def _look(self, since_t: float, over_s: float) -> Climb | None:
        past = itertools.islice(reversed(self.values), 1, None)  # the newest span is not whole yet
        end_t = self.values[-2][0] if len(self.values) > 1 else 0.0
        begin_t = max(end_t - over_s, since_t)
        chosen = list(itertools.takewhile(lambda one: one[0] >= begin_t, past))[::-1]
        if not chosen or end_t - chosen[0][0] < over_s - 2 * EVERY_S:
            return None
        if len(chosen) < over_s / EVERY_S / 2:
            return None  # too much of it was not seen
        return _even_climb(chosen)


def _even_climb(chosen: list[tuple[float, int]]) -> Climb | None:
    held = [value for _, value in chosen]
    if sum(b > a for a, b in itertools.pairwise(held)) < RISES:
        return None
    size = len(held) / SEGMENTS
    floors = [
        min(held[round(i * size) : max(round((i + 1) * size), round(i * size) + 1)])
        for i in range(SEGMENTS)
    ]
    steps = [b - a for a, b in itertools.pairwise(floors)]
    mean = (floors[-1] - floors[0]) / len(steps)
    if mean <= 0 or min(steps) < EVEN * mean:
        return None
    return Climb(chosen[0][0], held[0], held[-1], chosen[-1][0] - chosen[0][0])


class Memory:
    """Host memory of the run and memory in use on each GPU."""

    def __init__(self) -> None:
        self.host = Level()
        """Of all processes of the run, without files that they have mapped."""
        self.gpus: dict[int, Level] = {}

    def take(self, frame: Frame) -> None:
        """Take one frame; what it does not carry stays as it was."""
        held = _own_bytes(frame.processes or ())
        if held:
            self.host.take(frame.t, held)
        for card in frame.gpus or ():
            if card.state == "ok" and card.memory_used_bytes is not None:
                self.gpus.setdefault(card.index, Level()).take(frame.t, card.memory_used_bytes)


def _own_bytes(samples: Iterable[ProcessSample]) -> int:
    each = (one.anon_bytes if one.anon_bytes is not None else one.rss_bytes for one in samples)
    return sum(value for value in each if value is not None)
