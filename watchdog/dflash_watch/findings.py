"""Findings: edges of failures and symptoms, dated when they happened, newest first."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from dflash_watch.model import Finding, Severity, Symptom

KEPT = 60
CLEAR_S = 3.0
QUIET_NAMES = frozenset(
    {
        "exit-recorded", "phase-loading", "phase-compiling", "stacks-unseen", "work-still",
        "progress-overdue", "log-silent", "link-lost", "main-process-gone",
        "main-process-zombie",
    }
)  # fmt: skip
"""They are evidence of a failure that has a finding of its own."""


class Findings:
    """Open and closed findings of one run."""

    def __init__(self) -> None:
        self._all: dict[str, Finding] = {}
        self._open: dict[tuple[str, str], str] = {}
        self._missing_since_t: dict[tuple[str, str], float] = {}

    def advance(self, now_t: float, found: Iterable[tuple[str, str, Severity, float, str]]) -> None:
        """Take what holds now: (name, subject, severity, since, text)."""
        seen = set()
        for name, subject, severity, since_t, text in found:
            at = (name, subject)
            seen.add(at)
            self._missing_since_t.pop(at, None)
            key = self._open.get(at)
            if key is None:
                key = self._open[at] = f"{name}/{subject}@{since_t:.0f}"
                self._all[key] = Finding(
                    key=key, opened_t=min(since_t, now_t), severity=severity, failure=name,
                    subject=subject, text=text,
                )  # fmt: skip
            else:
                known = self._all[key]
                self._all[key] = msgspec.structs.replace(known, severity=severity, text=text)
        for at in [at for at in self._open if at not in seen]:
            since = self._missing_since_t.setdefault(at, now_t)
            if now_t - since >= CLEAR_S:
                self._close(at, since)
        while len(self._all) > KEPT:
            self._all.pop(next(iter(self._all)))

    def _close(self, at: tuple[str, str], t: float) -> None:
        key = self._open.pop(at)
        del self._missing_since_t[at]
        if key in self._all:
            self._all[key] = msgspec.structs.replace(self._all[key], closed_t=t)

    def listed(self) -> tuple[Finding, ...]:
        """Newest first."""
        return tuple(sorted(self._all.values(), key=lambda one: one.opened_t, reverse=True))


def notable(
    symptoms: Iterable[Symptom], explained: Iterable[str]
) -> Iterable[tuple[str, str, Severity, float, str]]:
    """Symptoms worth a line of their own: neither explained away nor of the ordinary kind."""
    hidden = set(explained) | QUIET_NAMES
    for one in symptoms:
        if one.name in hidden or one.severity == Severity.INFO or not one.starts:
            continue
        yield one.name, one.subject, one.severity, one.since_t, one.summary
