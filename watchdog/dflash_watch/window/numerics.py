"""Loss and gradient norm: since when they are no finite numbers, in the log and in the events."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dflash_watch.readers import numbers
from dflash_watch.readers.facts import LogFact, NumbersSeen, StepSeen

FIGURES = ("loss", "grad_norm")
MOST = 64
"""Series kept: two figures of each rank and source."""


@dataclass(slots=True)
class Streak:
    """One figure of one rank as one source tells it."""

    source: str
    """`events` or `log`."""
    what: str
    rank: int | None
    bad: int = 0
    """Readings in a row that are not finite."""
    since_t: float = 0.0
    """When the first of them was seen."""
    since_step: int | None = None
    step: int | None = None
    good: int = 0
    """Finite readings so far."""
    value: str = ""

    def take(self, value: str | None, t: float, step: int | None) -> None:
        """Take a reading; None is a finite one."""
        self.step = step if step is not None else self.step
        if value is None:
            self.good, self.bad = self.good + 1, 0
            return
        if not self.bad:
            self.since_t, self.since_step = t, step
        self.bad, self.value = self.bad + 1, value


class Numerics:
    """All figures that may go bad."""

    def __init__(self) -> None:
        self.streaks: dict[tuple[str, str, int | None], Streak] = {}

    def take_events(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Throughput events bring finite figures, numeric events the others."""
        for event in events:
            t, step = float(event["t"]), event.get("step")
            if event.get("kind") == "numeric":
                self._put("events", str(event.get("what")), None, str(event.get("value")), t, step)
            elif event.get("kind") == "throughput":
                for what in FIGURES:
                    value = event.get(what)
                    if isinstance(value, int | float) and math.isfinite(value):
                        self._put("events", what, None, None, t, step)

    def take_facts(self, facts: Iterable[LogFact]) -> None:
        """Lines of the log."""
        for fact in facts:
            if isinstance(fact, NumbersSeen):
                rank = numbers.rank_of(fact.text)
                self._put("log", fact.what, rank, fact.value, fact.t, fact.step)
            elif isinstance(fact, StepSeen):
                if fact.loss is not None:
                    self._put("log", "loss", fact.rank, None, fact.t, fact.step)
                if numbers.finite_norm(fact.text) is not None:
                    self._put("log", "grad_norm", fact.rank, None, fact.t, fact.step)

    def _put(
        self, source: str, what: str, rank: int | None, value: str | None, t: float,
        step: int | None,
    ) -> None:  # fmt: skip
        key = (source, what, rank)
        streak = self.streaks.get(key)
        if what not in FIGURES or (streak is None and len(self.streaks) >= MOST):
            return
        if streak is None:
            streak = self.streaks[key] = Streak(source, what, rank)
        streak.take(value, t, step)
