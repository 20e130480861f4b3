"""Findings: edges of failures and symptoms, dated when they happened, newest first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from dflash_watch.model import Finding, Severity, Symptom

KEPT = 60
CLEAR_S = 3.0
SETTLE_S = 6.0
"""A symptom gets a line of its own when no failure has explained it after so long."""
QUIET_NAMES = frozenset(
    {
        "exit-recorded", "phase-loading", "phase-compiling", "phase-evaluating",
        "phase-checkpointing", "stacks-unseen", "work-still",
        "progress-overdue", "log-silent", "link-lost", "main-process-gone",
        "main-process-zombie",
    }
)  # fmt: skip
"""They are evidence of a failure that has a finding of its own."""


@dataclass(frozen=True, slots=True)
class Line:
    """What may become a finding."""

    name: str
    subject: str
    severity: Severity
    since_t: float
    text: str
    is_failure: bool = False


class Findings:
    """Open and closed findings of one run."""

    def __init__(self) -> None:
        self._all: dict[str, Finding] = {}
        self._open: dict[tuple[str, str], str] = {}
        self._missing_since_t: dict[tuple[str, str], float] = {}
        self._pending_t: dict[tuple[str, str], float] = {}

    def advance(self, now_t: float, lines: Sequence[Line]) -> None:
        """Take what holds now."""
        held = {(line.name, line.subject) for line in lines}
        self._pending_t = {at: t for at, t in self._pending_t.items() if at in held}
        for line in lines:
            first_t = self._pending_t.setdefault((line.name, line.subject), now_t)
            if line.is_failure or now_t - first_t >= SETTLE_S:
                self._take(now_t, line, held)
        for at in [at for at in self._open if at not in held]:
            since = self._missing_since_t.setdefault(at, now_t)
            if now_t - since >= CLEAR_S:
                self._close(at, since)
        while len(self._all) > KEPT:
            self._all.pop(next(iter(self._all)))

    def note(self, finding: Finding) -> None:
        """A line about something that is over."""
        self._all[finding.key] = finding

    def _take(self, now_t: float, line: Line, held: set[tuple[str, str]]) -> None:
        at, unnamed = (line.name, line.subject), (line.name, "run")
        if at not in self._open and unnamed in self._open and unnamed not in held:
            self._open[at] = self._open.pop(unnamed)  # the same, its subject now known
            self._missing_since_t.pop(unnamed, None)
        self._missing_since_t.pop(at, None)
        key = self._open.setdefault(at, f"{line.name}/{line.subject}@{line.since_t:.0f}")
        known = self._all.get(key)
        opened_t = known.opened_t if known is not None else min(line.since_t, now_t)
        self._all[key] = Finding(
            key=key, opened_t=opened_t, severity=line.severity, failure=line.name,
            subject=line.subject, text=line.text,
        )  # fmt: skip

    def _close(self, at: tuple[str, str], t: float) -> None:
        key = self._open.pop(at)
        del self._missing_since_t[at]
        if key in self._all:
            self._all[key] = msgspec.structs.replace(self._all[key], closed_t=t)

    def listed(self) -> tuple[Finding, ...]:
        """Newest first."""
        return tuple(sorted(self._all.values(), key=lambda one: one.opened_t, reverse=True))


def notable(symptoms: Iterable[Symptom], explained: Iterable[str]) -> Iterator[Line]:
    """Symptoms worth a line of their own: neither explained away nor of the ordinary kind."""
    hidden = set(explained) | QUIET_NAMES
    for one in symptoms:
        if one.name in hidden or one.severity == Severity.INFO or not one.starts:
            continue
        yield Line(one.name, one.subject, one.severity, one.since_t, one.summary)
