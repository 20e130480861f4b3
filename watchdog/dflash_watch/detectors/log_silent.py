"""The log has said nothing for longer than it usually does.

Sees:       when any log of the run last grew, against its own earlier pauses.
Means:      by itself nothing: the run may be silent, hung, or not flushing.
Wrong when: the run prints rarely and has not been seen for long enough to know.
Source:     docs/verdicts.md, "log".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dflash_watch.detectors.base import Answer, Detector, Example, View, missing, symptom
from dflash_watch.detectors.examples import example, frames, log
from dflash_watch.model import Severity, Source
from dflash_watch.units import duration


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Limits."""

    least_s: float = 8.0
    """Least silence that counts."""
    pauses: float = 3.0
    """Times the longest pause seen before."""
    untaught_s: float = 60.0
    """Limit while fewer than three growths are known."""


def detect(view: View, params: Params) -> Iterator[Answer]:
    """Silence of all logs together."""
    logs = view.window.logs
    silent_s = logs.silent_s(view.window.data_t)
    if silent_s is None:
        yield missing("run", "a log of the run")
        return
    longest_s = logs.longest_pause_s()
    limit_s = params.untaught_s if longest_s is None else params.pauses * longest_s
    limit_s = max(limit_s, params.least_s)
    if silent_s > limit_s:
        text = f"log silent for {duration(silent_s)} (limit {duration(limit_s)})"
        yield symptom("run", Severity.INFO, view.now_t - silent_s, text, Source.LOG)


def firing() -> Example:
    """A line a second, then ten seconds without."""
    talk = frames(6, logs=lambda i: log(f"step {i}\n"))
    return example(talk, frames(10, start=6, logs=log("")), subject="run")


def clear() -> Example:
    """A line a second."""
    return example(frames(12, logs=lambda i: log(f"step {i}\n")))


DETECTOR = Detector(detect=detect, params=Params(), firing=firing, clear=clear)
