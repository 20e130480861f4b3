"""What a detector is, and what it may look at."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from dflash_watch.frame import Record
from dflash_watch.model import (
    Evidence,
    EvidenceKind,
    Inconclusive,
    Limit,
    RunOptions,
    Severity,
    Source,
    Symptom,
)
from dflash_watch.progress import Progress
from dflash_watch.readers.stacks import Comparison, ThreadChange
from dflash_watch.window import Window
from dflash_watch.window.waits import Waits

DUE_SHARE, UNTAUGHT_DUE_S = 0.6, 8.0
Answer = Symptom | Inconclusive


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """One moment of a run, as all detectors of a cycle see it."""

    window: Window
    progress: Progress
    limit: Limit
    is_taught: bool
    """Was that limit learned from enough steps of this run?"""
    waits: Waits
    options: RunOptions
    suspect_since_t: float | None = None
    """When the suspicion began whose stack samples count."""
    comparison: Comparison | None = None
    """What moved between them in the main process; None with fewer than two."""
    standing: Mapping[int, Comparison] = field(default_factory=dict)
    """pid -> the newest comparison since the last step, of each process of the run."""
    takes_stacks: bool = True
    """Will there be any?"""

    @property
    def now_t(self) -> float:
        """The watched host's clock."""
        return self.window.now_t

    def age_s(self) -> float | None:
        """Seconds of silence that count; None before the first step."""
        return self.progress.age_s(self.window)

    def is_due(self) -> bool:
        """Is silence long enough for hard evidence to count, before the limit has passed?"""
        age_s = self.age_s()
        due_s = DUE_SHARE * self.limit.seconds if self.is_taught else UNTAUGHT_DUE_S
        return age_s is not None and age_s > due_s

    def silent_over_s(self) -> float:
        """For how long silence has been past its limit; 0 within it, or before the first step."""
        return max((self.age_s() or 0.0) - self.limit.seconds, 0.0)

    def is_overdue(self) -> bool:
        """Has silence passed its limit?"""
        return self.silent_over_s() > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A small timeline and what the detector must say at its end."""

    records: tuple[Record, ...]
    subject: str | None = None
    """Of the symptom that must be there; None: no symptom."""
    options: RunOptions = field(default_factory=RunOptions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Detector:
    """A pure rule: the view in, symptoms or what is missing out."""

    detect: Callable[[View, Any], Iterator[Answer]]
    params: Any
    firing: Callable[[], Example]
    clear: Callable[[], Example]
    names_many: bool = False
    """Its symptoms are called `<file name>-<what>`."""

    def text(self) -> str:
        """What the rule says of itself, for people: the head of its file."""
        return inspect.getdoc(inspect.getmodule(self.detect)) or "no description"


def frozen_threads(view: View) -> tuple[ThreadChange, ...]:
    """Threads that stood at one place in all samples, when no thread of the run moved at all."""
    compared = view.comparison
    if compared is None or compared.that("moving", "working", "spinning", "new"):
        return ()
    return compared.that("blocked", "still")


def symptom(
    subject: str,
    severity: Severity,
    since_t: float,
    summary: str,
    source: Source,
    *more: Evidence,
    starts: bool = True,
) -> Symptom:
    """A symptom whose summary is its first evidence; the runner stamps the name."""
    own = Evidence(kind=EvidenceKind.FOR, text=summary, source=source)
    return Symptom(
        name="", subject=subject, severity=severity, since_t=since_t, summary=summary,
        source=source, evidence=(own, *more), starts=starts,
    )  # fmt: skip


def missing(subject: str, what: str) -> Inconclusive:
    """Cannot decide; the runner stamps the name."""
    return Inconclusive(name="", subject=subject, missing=what)
