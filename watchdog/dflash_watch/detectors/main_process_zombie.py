"""The main process is dead and only its entry is left.

Sees:       state Z or X of the main process.
Means:      it ended; its parent has not asked for the exit code, or children still hold on.
Wrong when: never for long: a parent that is about to collect it leaves a zombie for milliseconds.
Source:     proc(5), /proc/PID/stat.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dflash_watch.detectors.base import Answer, Detector, Example, View, symptom
from dflash_watch.detectors.examples import example, frames, process
from dflash_watch.model import Severity, Source
from dflash_watch.window.tracks import ZOMBIE, how_it_ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Limits."""

    looks: int = 2
    """Looks in a row."""


def detect(view: View, params: Params) -> Iterator[Answer]:
    """Zombie in successive looks."""
    main = view.window.main()
    if main is None or main.track.state not in ZOMBIE or main.track.state_looks < params.looks:
        return
    _, told = how_it_ended(main.sample.exit_code)
    text = f"process {main.sample.pid} is a zombie ({told})"
    yield symptom("run", Severity.CRITICAL, main.track.state_since_t, text, Source.PROCESS)


def firing() -> Example:
    """Three looks at a zombie."""
    return example(frames(3, processes=lambda i: (process(i, state="Z"),)), subject="run")


def clear() -> Example:
    """Alive."""
    return example(frames(3))


DETECTOR = Detector(detect=detect, params=Params(), firing=firing, clear=clear)
