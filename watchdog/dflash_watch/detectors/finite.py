"""A finite phase as a symptom: what explains silence for a time. No detector of its own."""

from __future__ import annotations

from collections.abc import Iterator

from dflash_watch.detectors.base import View, symptom
from dflash_watch.model import Severity, Source, Symptom
from dflash_watch.units import duration

SOURCES = {
    "stacks": Source.STACKS,
    "log": Source.LOG,
    "process": Source.PROCESS,
    "files": Source.PROCESS,
}


def phase_symptom(view: View, names: frozenset[str]) -> Iterator[Symptom]:
    """The phase that the run is in, when it has one of these names."""
    phase = view.progress.phase
    if phase is None or phase.name not in names:
        return
    text = f"{phase.name} for {duration(view.now_t - phase.since_t)}"
    if phase.detail:
        text += f": {phase.detail}"
    source = SOURCES.get(phase.source, Source.EVENTS)
    yield symptom("run", Severity.INFO, phase.since_t, text, source)
