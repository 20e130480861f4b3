"""The process stands still because it was stopped, by a signal or a tracer.

Sees:       state T or t of the main process in successive looks.
Means:      nothing runs until it is continued; the training itself is whole.
Wrong when: a debugger holds it on purpose for more than a pause.
Source:     proc(5), /proc/PID/stat.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dflash_watch.detectors.base import Answer, Detector, Example, View, symptom
from dflash_watch.detectors.examples import example, frames, process
from dflash_watch.model import Severity, Source
from dflash_watch.window.crew import called
from dflash_watch.window.tracks import STOPPED


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Limits."""

    least_s: float = 1.5
    """A stack dump in blocking mode stops a process for less."""
    pause_s: float = 5.0
    """A debugger, a snapshot or a person's pause stops one that was seen to run for less."""
    looks: int = 2
    """Looks in a row."""


def detect(view: View, params: Params) -> Iterator[Answer]:
    """The main process, or a Python child of it."""
    main_pid = view.window.main_pid()
    for process_ in view.window.tracks.in_state(STOPPED):
        track, sample = process_.track, process_.sample
        if sample.pid != main_pid and not sample.is_python:
            continue
        stands_s = track.last_t - track.state_since_t
        ran_before = track.state_since_t > track.first_t
        least_s = params.pause_s if ran_before else params.least_s
        if track.state_looks < params.looks or stands_s < least_s:
            continue
        by = f"traced by {sample.tracer_pid}" if sample.tracer_pid else "stopped by a signal"
        text = f"{called(view.window.tracks, sample.pid)} is in state {track.state}: {by}"
        subject = "run" if sample.pid == main_pid else f"process {sample.pid}"
        yield symptom(subject, Severity.CRITICAL, track.state_since_t, text, Source.PROCESS)


def firing() -> Example:
    """Four looks at state T."""
    return example(frames(4, processes=lambda i: (process(i, state="T"),)), subject="run")


def clear() -> Example:
    """Stopped for three seconds after it was seen to run."""
    return example(
        frames(2), frames(4, start=2, processes=lambda i: (process(i, state="T"),)),
    )  # fmt: skip


DETECTOR = Detector(detect=detect, params=Params(), firing=firing, clear=clear)
