"""The main process was there and is not any more.

Sees:       the process list of the watched side.
Means:      the run is over; whether well or badly is for other evidence to say.
Wrong when: the run goes on in another process that was not recognised as its own.
Source:     docs/frames.md, RunSample.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dflash_watch.detectors.base import Answer, Detector, Example, View, symptom
from dflash_watch.detectors.examples import PID, example, frames
from dflash_watch.frame import RunSample
from dflash_watch.model import Severity, Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """None."""


def detect(view: View, _params: Params) -> Iterator[Answer]:
    """Gone is gone."""
    gone_t = view.window.gone_t()
    if gone_t is not None:
        pid = view.window.main_pid()
        frame = view.window.frame
        note = frame.run.note if frame is not None else None
        never = note or "no process of it was ever seen"
        text = never if pid is None else f"process {pid} is not there any more"
        yield symptom("run", Severity.CRITICAL, gone_t, text, Source.PROCESS)


def firing() -> Example:
    """There, then gone."""
    gone = RunSample(state="gone", how="pid", root_pid=PID, gone_s=1.0)
    return example(frames(3), frames(1, start=3, run=gone, processes=()), subject="run")


def clear() -> Example:
    """There."""
    return example(frames(3))


DETECTOR = Detector(detect=detect, params=Params(), firing=firing, clear=clear)
