"""Incidents over time, and the stack samples that belong to them.

Suspect (sample A), confirm (B and C, seconds apart), ready: the folder is written once. The same
thing is never opened twice; what flaps within its damping time is the same incident again. Each
stack sample is asked for in exactly one snapshot, and once more when no answer comes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from dflash_watch.frame import StackSample
from dflash_watch.model import (
    Incident,
    IncidentStage,
    Severity,
    StackRequest,
    Verdict,
)
from dflash_watch.window.samples import OTHER

LABELS = ("A", "B", "C")
OTHERS_AT = ("A", "B")
"""Samples that are taken of the other processes too: two tell what moves."""
APART_S = 2.5
"""Between two samples: long enough for anything alive to move."""
LOOK_AGAIN_S = 25.0
"""While a silence lasts that is not believed to be a stall."""
ANSWER_S = 8.0
"""Wait for one sample; then it is asked for once more, then given up."""
SETTLE_S = 12.0
"""A worker may die seconds before the run stands still: the folder waits for that verdict."""
HOLD_S = 2.0
"""Before a folder without stacks is written, for last words to arrive."""
CLEAR_S = 3.0
"""What has cleared for so long is over."""
DAMPING_S = 120.0
"""The same again within this time is the same incident."""
BAD = frozenset({Verdict.STALLED, Verdict.CRASHED})
GOES_ON = frozenset({Verdict.RUNNING, Verdict.SLOW})


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What the incident machine looks at in one cycle."""

    now_t: float
    verdict: Verdict
    failure: str
    subject: str
    severity: Severity
    since_t: float
    is_suspicious: bool
    opens: bool
    """Does verdict and playbook call for an incident?"""
    wants_stacks: bool
    pid: int | None
    """Process to take stacks of; None when there is none any more."""
    others: tuple[int, ...] = ()
    """Further processes of the run: sampled with it, never waited for."""
    no_stacks: str | None = None
    """Why the failure has no stacks although the process may be there."""
    is_remembered: bool = False
    """The open incident is an earlier watcher's, and nothing seen since disproves it."""


class StackRounds:
    """A, B and C of one suspicion."""

    def __init__(self) -> None:
        self.since_t: float | None = None
        self._asked: dict[str, tuple[float, int]] = {}
        self._calm_since_t: float | None = None
        self.failed: str | None = None

    def advance(
        self, now: Situation, samples: Mapping[str, StackSample], *, has_incident: bool
    ) -> tuple[StackRequest, ...]:
        """Requests of this cycle: at most one of the main process."""
        self._follow(now, has_incident=has_incident)
        if self.since_t is None or now.pid is None or self.failed is not None:
            return ()
        taken = self.taken(samples)
        if len(taken) == 2 and not has_incident:
            if now.now_t - samples[taken[-1]].t < LOOK_AGAIN_S:
                return ()
            self.since_t, self._asked, taken = now.now_t, {}, []
        if len(taken) == len(LABELS):
            return ()
        if taken and now.now_t - samples[taken[-1]].t < APART_S:
            return ()
        return self._ask(LABELS[len(taken)], now, now.pid)

    def _follow(self, now: Situation, *, has_incident: bool) -> None:
        if now.is_suspicious:
            self._calm_since_t = None
            if self.since_t is None:
                self.since_t, self._asked, self.failed = now.now_t, {}, None
        elif self.since_t is not None and not has_incident:
            self._calm_since_t = self._calm_since_t or now.now_t
            if now.now_t - self._calm_since_t >= CLEAR_S:
                self.since_t = None

    def taken(self, samples: Mapping[str, StackSample]) -> list[str]:
        """Labels of this suspicion's samples that have come, in order."""
        if self.since_t is None:
            return []
        return [label for label in LABELS if label in samples and samples[label].t >= self.since_t]

    def _ask(self, label: str, now: Situation, pid: int) -> tuple[StackRequest, ...]:
        asked_t, times = self._asked.get(label, (0.0, 0))
        if times and now.now_t - asked_t < ANSWER_S:
            return ()
        if times >= 2:
            self.failed = f"no stack sample within {ANSWER_S:.0f} s, asked twice"
            return ()
        self._asked[label] = (now.now_t, times + 1)
        reason = f"{now.failure}: {now.subject}"
        others = now.others if label in OTHERS_AT and not times else ()
        return (
            StackRequest(label=label, pid=pid, reason=reason),
            *(
                StackRequest(label=f"{label}{OTHER}{one}", pid=one, reason=reason)
                for one in others
                if one != pid
            ),
        )


class Incidents:
    """At most one open incident, the one closed last, and the stack samples they need."""

    def __init__(self) -> None:
        self.open: Incident | None = None
        self.last: Incident | None = None
        self.rounds = StackRounds()
        self._clear_since_t: float | None = None
        self._opened_seen_t = 0.0

    def advance(
        self, now: Situation, samples: Mapping[str, StackSample]
    ) -> tuple[StackRequest, ...]:
        """Next state; returns the stack samples wanted now. A blind moment changes nothing."""
        if now.verdict == Verdict.BLIND and not now.opens:
            return ()
        if now.opens:
            self._clear_since_t = None
            self._raise(now)
        elif self.open is not None and not now.is_remembered:
            self._calm(now)
        wants = self.rounds.advance(now, samples, has_incident=self.open is not None)
        if self.open is not None:
            self.open = self._grow(self.open, now, samples)
        return wants

    @property
    def shown(self) -> Incident | None:
        """The open one, else the one resolved last."""
        return self.open or self.last

    def _raise(self, now: Situation) -> None:
        if self.open is None:
            again = self._again(now)
            self.open = again or _opened(now)
            self._opened_seen_t = now.now_t
            return
        worse = self.open.verdict != now.verdict and now.verdict == Verdict.CRASHED
        if worse and self.open.ready:
            self.last = _resolved(self.open, now.now_t)
            self.open, self._opened_seen_t = _opened(now), now.now_t
        elif not self.open.ready and (self.open.failure, self.open.subject) != (
            now.failure, now.subject,
        ):  # fmt: skip
            named = _opened(now)
            self.open = msgspec.structs.replace(
                named, stage=self.open.stage, confirmed_t=self.open.confirmed_t,
                opened_t=self.open.opened_t,
                key=f"{now.failure}/{now.subject}@{self.open.opened_t:.0f}",
            )  # fmt: skip

    def _again(self, now: Situation) -> Incident | None:
        last = self.last
        if last is None or (last.failure, last.subject) != (now.failure, now.subject):
            return None
        if now.now_t - (last.resolved_t or 0.0) > DAMPING_S:
            return None
        return msgspec.structs.replace(last, stage=IncidentStage.CONFIRMED, resolved_t=None)

    def _calm(self, now: Situation) -> None:
        self._clear_since_t = self._clear_since_t or now.now_t
        if self.open is None or now.now_t - self._clear_since_t < CLEAR_S:
            return
        if self.open.stage == IncidentStage.CONFIRMED:
            self.last = _resolved(self.open, self._clear_since_t)
        self.open = None

    def _grow(
        self, incident: Incident, now: Situation, samples: Mapping[str, StackSample]
    ) -> Incident:
        """Samples that came, confirmation, and whether the folder may be written."""
        if incident.ready:
            return incident
        taken = self.rounds.taken(samples) if now.wants_stacks else []
        missing = self._missing(now, taken)
        waited_s = now.now_t - self._opened_seen_t
        confirmed = missing is not None or len(taken) >= 2 or waited_s >= ANSWER_S
        whole = len(taken) == len(LABELS) or (missing is not None and waited_s >= HOLD_S)
        if taken and (now.pid is None or self.rounds.failed is not None):
            whole = whole or waited_s >= HOLD_S
        if now.verdict in GOES_ON and waited_s < SETTLE_S:
            whole = False
        if confirmed and incident.stage == IncidentStage.SUSPECTED:
            incident = msgspec.structs.replace(
                incident, stage=IncidentStage.CONFIRMED, confirmed_t=now.now_t
            )
        return msgspec.structs.replace(
            incident,
            verdict=now.verdict if now.opens else incident.verdict,
            stack_labels=tuple(taken), stacks_missing=missing, ready=whole,
        )  # fmt: skip

    def _missing(self, now: Situation, taken: list[str]) -> str | None:
        if taken:
            return None
        if not now.wants_stacks:
            return now.no_stacks or f"{now.failure} needs none"
        if now.pid is None:
            return now.no_stacks or "the process is not there any more"
        return self.rounds.failed


def _opened(now: Situation) -> Incident:
    return Incident(
        key=f"{now.failure}/{now.subject}@{now.since_t:.0f}",
        failure=now.failure, subject=now.subject, verdict=now.verdict, severity=now.severity,
        stage=IncidentStage.SUSPECTED, opened_t=now.since_t,
    )  # fmt: skip


def _resolved(incident: Incident, t: float) -> Incident:
    return msgspec.structs.replace(incident, stage=IncidentStage.RESOLVED, resolved_t=t)
