"""A thread of the run is blocked in its logger or in its own output.

Sees:       stack samples: a thread that stands in an experiment logger, a log handler or a progress
            bar, or in a write that nobody takes, in all of them while no step is made.
Means:      the logger's own thread, process or connection hangs, or the reader of the pipe or
            terminal does not read; training itself is well and waits behind it.
Wrong when: a large artefact is uploaded on purpose within the loop.
Source:     readers/places.py; pipe(7).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dflash_watch.detectors.base import Answer, Detector, Example, View
from dflash_watch.detectors.examples import example, standing, twice
from dflash_watch.detectors.stuck import is_silent, stuck_symptom, stuck_threads
from dflash_watch.model import Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """None: a step is due by the learned limit."""


def detect(view: View, _params: Params) -> Iterator[Answer]:
    """The first such thread; service threads of loggers are left out before."""
    if not is_silent(view):
        return
    for one in stuck_threads(view):
        if one.place == "logger" or one.wait == "output":
            text = "writes output that nobody takes" if one.wait == "output" else "is in its logger"
            yield stuck_symptom(view, one, Severity.CRITICAL, text)
            return


def firing() -> Example:
    """A write into a pipe that is full."""
    held = standing(10, "MainThread", "train.py:report", wchan="pipe_write", syscall="1")
    return example(twice(held), subject="run")


def clear() -> Example:
    """The logger's own thread waits by design."""
    own = standing(12, "Thread-3", "queue.py:get", "wandb/sdk/internal/x.py:run")
    return example(twice(standing(10, "MainThread", "train.py:step"), own))


DETECTOR = Detector(detect=detect, params=Params(), firing=firing, clear=clear)
