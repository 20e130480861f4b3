"""The process waits inside the kernel and cannot be interrupted.

Sees:       state D of the main process in all of the newest looks, no CPU ticks.
Means:      a file system or driver call does not return.
Wrong when: a slow disk writes one large checkpoint in a single call.
Source:     proc(5), /proc/PID/stat and wchan.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dflash_watch.detectors.base import Answer, Detector, Example, View, symptom
from dflash_watch.detectors.examples import example, frames, process
from dflash_watch.model import Severity, Source
from dflash_watch.units import duration
from dflash_watch.window.tracks import DISK


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Limits."""

    least_s: float = 10.0
    """Shorter waits are ordinary."""
    looks: int = 5
    """Looks in a row."""


def detect(view: View, params: Params) -> Iterator[Answer]:
    """The main process only: children on slow disks are ordinary."""
    main = view.window.main()
    if main is None or main.track.state != DISK or main.track.state_looks < params.looks:
        return
    stands_s = main.track.last_t - main.track.state_since_t
    if stands_s < params.least_s or (main.track.moved_t or 0.0) > main.track.state_since_t:
        return
    where = main.sample.wchan or "an unknown kernel function"
    text = f"process {main.sample.pid} in state D for {duration(stands_s)}, in {where}"
    yield symptom("run", Severity.CRITICAL, main.track.state_since_t, text, Source.PROCESS)


def firing() -> Example:
    """Twelve seconds in D."""
    stuck = frames(13, processes=lambda i: (process(i, state="D", cpu_ticks=5, wchan="nfs"),))
    return example(stuck, subject="run")


def clear() -> Example:
    """In D at each look, yet working between them."""
    return example(frames(13, processes=lambda i: (process(i, state="D"),)))


DETECTOR = Detector(detect=detect, params=Params(), firing=firing, clear=clear)
