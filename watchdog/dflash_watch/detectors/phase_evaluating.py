"""The run evaluates.

Sees:       phase events, lines of the log, frames of the main thread in stacks, growing files.
Means:      no training step is due; an evaluation ends by itself.
Wrong when: the evaluation itself hangs: its budget then ends.
Source:     docs/run-directory.md, "phase"; docs/verdicts.md, "phases".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dflash_watch.detectors.base import Answer, Detector, Example, View
from dflash_watch.detectors.examples import begun, over
from dflash_watch.detectors.finite import phase_symptom


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Names of phases that are this one."""

    names: frozenset[str] = frozenset({"evaluating"})


def detect(view: View, params: Params) -> Iterator[Answer]:
    """The phase as it is known."""
    yield from phase_symptom(view, params.names)


def firing() -> Example:
    """Announced by an event."""
    return begun(kind="phase", name="evaluating")


def clear() -> Example:
    """Announced and ended."""
    return over(kind="phase", name="evaluating")


DETECTOR = Detector(detect=detect, params=Params(), firing=firing, clear=clear)
