"""What a watcher knew of a run, for the one that takes its place after a restart.

It is believed of the same run only, and only until this watcher has seen for itself: an open
incident goes on until steps disprove it, and the time between is a time that nobody saw.
"""

from __future__ import annotations

from dataclasses import replace

from dflash_watch.endings import Judgement
from dflash_watch.model import (
    Evidence,
    EvidenceKind,
    Finding,
    Incident,
    Record,
    Severity,
    Source,
    Verdict,
)
from dflash_watch.units import duration
from dflash_watch.window import Window

AWAY_S = 5.0
"""A restart that took no longer was no absence."""
TOLD_S = 600.0
"""For so long it is said that there was one."""
HOLD_S = 300.0
"""Failures that no step disproves (a leak, a lost card) may take so long to be seen again."""
LOOK_S = 20.0
"""For so long a stall stands by memory, until stacks and stillness tell again."""
STANDS = frozenset({Verdict.STALLED, Verdict.CRASHED})
UNPROVEN = frozenset({Verdict.RUNNING, Verdict.SLOW, Verdict.QUIET, Verdict.INITIALISING})
"""What the first looks say of a run that makes no step."""


class Remembered(Record, frozen=True, kw_only=True):
    """The state of one run as its watcher last saw it; moments on the watched host's clock."""

    pid: int | None
    start_ticks: int | None
    run_id: str | None
    t: float
    """Newest frame."""
    verdict: Verdict
    """The newest that was not blind."""
    since_t: float
    incident: Incident | None = None
    """The open one."""
    last: Incident | None = None
    """The one resolved last."""

    def is_of(self, identity: tuple[int | None, int | None, str | None]) -> bool:
        """Is that run this one?"""
        pid, start_ticks, run_id = identity
        if self.run_id is not None and run_id is not None:
            return self.run_id == run_id
        return pid is not None and (self.pid, self.start_ticks) == (pid, start_ticks)


class Recall:
    """What was remembered, and how long it counts.

    Args:
        brought: by the command that starts the engine; None when nothing was kept.
    """

    def __init__(self, brought: Remembered | None = None) -> None:
        self._brought = brought
        self.known: Remembered | None = None
        """Of this run; None while that is not certain, or there is none."""
        self._again_t = 0.0

    def meet(self, window: Window) -> Remembered | None:
        """What is known of the run in the window, once: when it is first recognised."""
        frame, brought = window.frame, self._brought
        if brought is None or frame is None or window.identity == (None, None, None):
            return None
        self._brought = None
        if not brought.is_of(window.identity):
            return None
        self.known, self._again_t = brought, frame.t
        return brought

    @property
    def is_waiting(self) -> bool:
        """Something was brought, and its run has not been met."""
        return self._brought is not None

    def judged(self, now: Judgement, now_t: float, last_step_t: float | None) -> Judgement:
        """What holds now, in the light of what was known and no step has disproved.

        The same verdict holds since it held before. A stall takes seconds to be seen again: so
        long it stands, and says what it stands on.
        """
        known = self.known
        if known is None or self._has_stepped(known, last_step_t):
            return now
        if known.verdict == now.verdict:
            return replace(now, since_t=min(now.since_t, known.since_t))
        if known.verdict is not Verdict.STALLED or now.verdict not in UNPROVEN:
            return now
        if now_t - self._again_t > LOOK_S:
            return now
        why = f"it stood still {duration(now_t - known.t)} ago, no step since; looked at again"
        failure = known.incident.failure if known.incident is not None else None
        return Judgement(verdict=known.verdict, since_t=known.since_t, why=why, failure=failure)

    def holds(
        self, incident: Incident | None, now: Verdict, now_t: float, last_step_t: float | None
    ) -> bool:
        """Is this incident the remembered one, and not disproved yet?"""
        known = self.known
        if known is None or known.incident is None or incident is None:
            return False
        if incident.key != known.incident.key or now is Verdict.FINISHED:
            return False
        if known.incident.verdict in STANDS:
            return not self._has_stepped(known, last_step_t)
        return now_t - self._again_t < HOLD_S

    @staticmethod
    def _has_stepped(known: Remembered, last_step_t: float | None) -> bool:
        return last_step_t is not None and last_step_t > known.t

    def evidence(self, now_t: float) -> tuple[Evidence, ...]:
        """That there was a time nobody saw, while that is new."""
        known = self.known
        if known is None or self._away_s(known) < AWAY_S or now_t - self._again_t > TOLD_S:
            return ()
        text = (
            f"watched again for {duration(max(now_t - self._again_t, 0.0))};"
            f" nothing was seen for {duration(self._away_s(known))} before, no watcher ran"
        )
        return (Evidence(kind=EvidenceKind.MISSING, text=text, source=Source.LINK),)

    def finding(self) -> Finding | None:
        """The same as a line that stays; it is over."""
        known = self.known
        if known is None or self._away_s(known) < AWAY_S:
            return None
        return Finding(
            key=f"watch-lost/watcher@{known.t:.0f}", opened_t=known.t, closed_t=self._again_t,
            severity=Severity.INFO, failure="watch-lost", subject="watcher",
            text=f"nothing was seen for {duration(self._away_s(known))}: no watcher ran",
        )  # fmt: skip

    def _away_s(self, known: Remembered) -> float:
        return max(self._again_t - known.t, 0.0)
