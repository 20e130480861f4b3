"""A thread waits for a lock on a file.

Sees:       stack samples: a thread that stands in a file lock (lock file, flock, a build's baton)
            in all of them while no step is made and nothing moves.
Means:      another process holds the lock, or a killed one left its lock file behind, or the file
            system cannot lock at all.
Wrong when: the holder is on another machine and still builds or downloads.
Source:     readers/waits.py; torch.utils.file_baton, filelock, flock(2).
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
    """The first such thread; the others wait behind it."""
    if not is_silent(view):
        return
    for one in stuck_threads(view):
        if one.place == "file-lock":
            yield stuck_symptom(view, one, Severity.CRITICAL, "waits for a lock file")
            return


def firing() -> Example:
    """A build's baton, twice."""
    held = standing(
        10, "MainThread", "torch/utils/file_baton.py:wait", "torch/utils/cpp_extension.py:load"
    )
    return example(twice(held), subject="run")


def clear() -> Example:
    """A lock of threads is none."""
    return example(twice(standing(10, "MainThread", "threading.py:acquire", "a.py:f")))


DETECTOR = Detector(detect=detect, params=Params(), firing=firing, clear=clear)
