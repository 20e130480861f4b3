"""How long silence may last: learned per phase from this run, and said with its reason.

limit = clamp(8 x the usual longest gap, 2.5 x the longest gap ever seen, floor, ceiling); before
eight gaps a generous start limit stands, or twice the limit that earlier runs of the same command
had. A finite phase may take six times as long as the longest of its kind. A gap that raised an
alarm is never learned.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from dflash_watch.model import Limit
from dflash_watch.profiles import Profile
from dflash_watch.units import duration

FLOOR_S = 8.0
"""Least limit: a busy machine delays any step by seconds."""
YOUNG_FLOOR_S, YOUNG_S = 12.0, 10.0
"""Least limit while the steps learned from took less than so long together."""
CEILING_S = 1800.0
START_S = 120.0
"""Limit before enough gaps are known."""
LEAST_STEPS = 8
LEAST_OVER_S = 2.0
"""Seconds that the learned steps took: a burst at the start teaches nothing."""
USUAL_TIMES = 8.0
USUAL_QUANTILE = 0.98
LONGEST_TIMES = 2.5
KEPT = 512
PRIOR_TIMES, PRIOR_FLOOR_S = 2.0, 60.0
"""Of the limit that earlier runs of the command had, while this one has taught too little."""
PHASE_TIMES, PHASE_FLOOR_S, PHASE_CEILING_S = 6.0, 300.0, 7200.0
"""A checkpoint took 5 minutes and the next one 15: budgets of phases are generous."""


class LearnedLimits:
    """Gaps between steps by phase, and the limits that follow from them."""

    def __init__(self, identity: str | None = None) -> None:
        self.identity = identity
        """Whose gaps these are; those of another run are not believed."""
        self.prior: Profile | None = None
        """Of earlier runs of the same command."""
        self._phases: dict[str, float] = {}
        """Finite phase -> the longest time it took."""
        self._gaps: dict[str, deque[float]] = {}
        self._steps: dict[str, int] = {}
        self._over_s: dict[str, float] = {}

    def observe(
        self, phase: str, gap_s: float, steps: int = 1, over_s: float | None = None
    ) -> None:
        """Learn the longest gap among some steps that raised no alarm.

        Args:
            phase: limits are learned for each phase on its own.
            gap_s: longest silence among these steps.
            steps: how many steps were made.
            over_s: how long they took together; the gap itself for a single step.
        """
        self._gaps.setdefault(phase, deque(maxlen=KEPT)).append(gap_s)
        self._steps[phase] = self._steps.get(phase, 0) + steps
        seconds = gap_s if over_s is None else over_s
        self._over_s[phase] = self._over_s.get(phase, 0.0) + seconds

    def observe_phase(self, name: str, seconds: float) -> None:
        """A finite phase ended within its budget."""
        if 0 < seconds < PHASE_CEILING_S:
            self._phases[name] = max(self._phases.get(name, 0.0), seconds)

    def budget(self, name: str, usual_s: float) -> Limit:
        """How long a finite phase may take that says no budget of its own.

        Args:
            name: of the phase.
            usual_s: what such a phase may take while none was seen.
        """
        known, of_whom = self._phases.get(name), "the longest so far"
        if known is None and self.prior is not None:
            known, of_whom = self.prior.phases.get(name), "the longest of earlier runs"
        if known is None:
            return Limit(seconds=usual_s, why=f"budget of {name} while none was seen")
        seconds = min(max(PHASE_TIMES * known, PHASE_FLOOR_S), PHASE_CEILING_S)
        return Limit(
            seconds=seconds,
            why=f"{PHASE_TIMES:g} x {of_whom} ({duration(known)}), at least"
            f" {duration(PHASE_FLOOR_S)} = {duration(seconds)}",
        )

    def is_taught(self, phase: str) -> bool:
        """Are enough steps known to learn from?"""
        steps, over_s = self._steps.get(phase, 0), self._over_s.get(phase, 0.0)
        return bool(self._gaps.get(phase)) and steps >= LEAST_STEPS and over_s >= LEAST_OVER_S

    def limit(self, phase: str) -> Limit:
        """The longest silence that is still believable in this phase, and why."""
        gaps = sorted(self._gaps.get(phase, ()))
        steps, over_s = self._steps.get(phase, 0), self._over_s.get(phase, 0.0)
        if not self.is_taught(phase):
            if self.prior is not None and phase == "training":
                return _prior_limit(self.prior)
            return Limit(
                seconds=START_S,
                why=f"start limit: {steps} steps in {duration(over_s)} teach too little",
            )
        usual, longest = gaps[int(USUAL_QUANTILE * (len(gaps) - 1))], gaps[-1]
        by_usual, by_longest = USUAL_TIMES * usual, LONGEST_TIMES * longest
        floor_s = FLOOR_S if over_s >= YOUNG_S else YOUNG_FLOOR_S
        seconds = min(max(by_usual, by_longest, floor_s), CEILING_S)
        if seconds == floor_s:
            why = f"least limit: the slowest of {steps} steps took {duration(longest)}"
        elif seconds == CEILING_S:
            why = f"greatest limit: the slowest of {steps} steps took {duration(longest)}"
        elif by_usual >= by_longest:
            slowest = "slowest" if usual == longest else "slow ones"
            why = f"{USUAL_TIMES:g} x the {slowest} of {steps} steps"
        else:
            why = f"{LONGEST_TIMES:g} x the longest pause of {steps} steps"
        return Limit(seconds=seconds, why=f"{why} = {duration(seconds)}")

    def to_data(self) -> dict[str, Any]:
        """Plain data that JSON can hold."""
        gaps = {phase: [round(gap, 4) for gap in gaps] for phase, gaps in self._gaps.items()}
        told = {"steps": self._steps, "over_s": self._over_s, "phases": self._phases}
        return {"schema": 1, "identity": self.identity, "gaps": gaps, **told}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> LearnedLimits:
        """From `to_data`; whatever cannot be believed is left out."""
        limits = cls(str(data["identity"]) if data.get("identity") else None)
        gaps = data.get("gaps")
        for phase, values in (gaps if isinstance(gaps, Mapping) else {}).items():
            for value in values if isinstance(values, list) else ():
                if isinstance(value, int | float) and 0 <= value < CEILING_S:
                    limits.observe(str(phase), float(value))
        for phase, value in _numbers(data.get("steps")):
            limits._steps[phase] = int(value)
        for phase, value in _numbers(data.get("over_s")):
            limits._over_s[phase] = value
        for name, value in _numbers(data.get("phases")):
            limits.observe_phase(name, value)
        return limits

    def profile(self, used_t: float) -> Profile | None:
        """For later runs of the same command; None before enough was learned."""
        if not self.is_taught("training"):
            return None
        limit_s, steps = self.limit("training").seconds, self._steps.get("training", 0)
        return Profile(limit_s=limit_s, steps=steps, phases=dict(self._phases), used_t=used_t)


def _prior_limit(prior: Profile) -> Limit:
    seconds = min(max(PRIOR_TIMES * prior.limit_s, PRIOR_FLOOR_S), CEILING_S)
    why = f"{PRIOR_TIMES:g} x the limit of earlier runs of this command"
    return Limit(seconds=seconds, why=f"{why} ({duration(prior.limit_s)}) = {duration(seconds)}")


MOST = 1e12
"""Steps, or seconds of them: no run makes more. What is not a number is not below it either."""


def _numbers(told: object) -> list[tuple[str, float]]:
    """Names and numbers of a mapping that came from outside."""
    pairs = told.items() if isinstance(told, Mapping) else ()
    return [
        (str(key), float(one))
        for key, one in pairs
        if isinstance(one, int | float) and 0 <= one < MOST
    ]
