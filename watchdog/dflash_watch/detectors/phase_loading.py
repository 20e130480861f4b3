"""The run loads: no step yet, and something is being read or built.

Sees:       phase events, loading bars and model lines in the log, frames of loaders in stacks.
Means:      it has not started; silence and low throughput mean nothing yet.
Wrong when: loading itself hangs: its budget then ends.
Source:     docs/run-directory.md, "phase".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dflash_watch.detectors.base import Answer, Detector, Example, View, symptom
from dflash_watch.detectors.examples import begun, over
from dflash_watch.model import Severity, Source
from dflash_watch.units import duration


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """None."""


def detect(view: View, _params: Params) -> Iterator[Answer]:
    """The phase as it is known, with what the log says of it."""
    phase = view.progress.phase
    if phase is None or phase.name != "loading":
        return
    subject, text = "run", f"loading for {duration(view.now_t - phase.since_t)}"
    facts = view.window.logs.loading
    if facts:
        newest = facts[-1]
        text += f": {newest.what}"
        if newest.done is not None and newest.total:
            text += f" {newest.done}/{newest.total}"
        named = [fact.subject for fact in facts if fact.subject is not None]
        subject = named[-1] if named else subject
    source = Source.LOG if phase.source == "log" else Source.EVENTS
    yield symptom(subject, Severity.INFO, phase.since_t, text, source)


def firing() -> Example:
    """Announced by an event."""
    return begun(kind="phase", name="loading")


def clear() -> Example:
    """Announced and ended."""
    return over(kind="phase", name="loading")


DETECTOR = Detector(detect=detect, params=Params(), firing=firing, clear=clear)
