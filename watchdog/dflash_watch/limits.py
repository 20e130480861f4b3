"""How long silence may last: learned per phase from this run, and said with its reason.

limit = clamp(8 x the usual longest gap, 2.5 x the longest gap ever seen, floor, ceiling); before
eight gaps a generous start limit stands. A gap that raised an alarm is never learned.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from dflash_watch.model import Limit
from dflash_watch.units import duration

FLOOR_S = 8.0
"""Least limit: a busy machine delays any step by seconds."""
CEILING_S = 1800.0
START_S = 120.0
"""Limit before enough gaps are known."""
LEAST_GAPS = 8
USUAL_TIMES = 8.0
USUAL_QUANTILE = 0.98
LONGEST_TIMES = 2.5
KEPT = 512


class LearnedLimits:
    """Gaps between steps by phase, and the limits that follow from them."""

    def __init__(self, identity: str | None = None) -> None:
        self.identity = identity
        """Whose gaps these are; those of another run are not believed."""
        self._gaps: dict[str, deque[float]] = {}

    def observe(self, phase: str, gap_s: float) -> None:
        """Learn one gap between two steps that raised no alarm."""
        self._gaps.setdefault(phase, deque(maxlen=KEPT)).append(gap_s)

    def known(self, phase: str) -> int:
        """How many gaps of this phase are known."""
        return len(self._gaps.get(phase, ()))

    def limit(self, phase: str) -> Limit:
        """The longest silence that is still believable in this phase, and why."""
        gaps = sorted(self._gaps.get(phase, ()))
        if len(gaps) < LEAST_GAPS:
            return Limit(
                seconds=START_S,
                why=f"start limit: {len(gaps)} of {LEAST_GAPS} steps seen to learn from",
            )
        usual, longest = gaps[int(USUAL_QUANTILE * (len(gaps) - 1))], gaps[-1]
        by_usual, by_longest = USUAL_TIMES * usual, LONGEST_TIMES * longest
        seconds = min(max(by_usual, by_longest, FLOOR_S), CEILING_S)
        if seconds == FLOOR_S:
            why = f"least limit: the slowest of {len(gaps)} steps took {duration(longest)}"
        elif seconds == CEILING_S:
            why = f"greatest limit: the slowest of {len(gaps)} steps took {duration(longest)}"
        elif by_usual >= by_longest:
            slowest = "slowest" if usual == longest else "slow ones"
            why = f"{USUAL_TIMES:g} x the {slowest} of {len(gaps)} steps"
        else:
            why = f"{LONGEST_TIMES:g} x the longest of {len(gaps)} pauses"
        return Limit(seconds=seconds, why=f"{why} = {duration(seconds)}")

    def to_data(self) -> dict[str, Any]:
        """Plain data that JSON can hold."""
        gaps = {phase: [round(gap, 4) for gap in gaps] for phase, gaps in self._gaps.items()}
        return {"schema": 1, "identity": self.identity, "gaps": gaps}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> LearnedLimits:
        """From `to_data`; whatever cannot be believed is left out."""
        limits = cls(str(data["identity"]) if data.get("identity") else None)
        gaps = data.get("gaps")
        for phase, values in (gaps if isinstance(gaps, Mapping) else {}).items():
            for value in values if isinstance(values, list) else ():
                if isinstance(value, int | float) and 0 <= value < CEILING_S:
                    limits.observe(str(phase), float(value))
        return limits
