"""A worker process of the data loader is gone while its batches are waited for.

Sees:       Python children of the main process that ended by a signal, or vanished while the
            training thread stands in a data loader.
Means:      it was killed (memory, shared memory, a crash in native code) without a traceback.
Wrong when: an epoch ends and the loader lets its workers go, and something else hangs then.
Source:     proc(5), exit status of zombies; readers/places.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dflash_watch.detectors.base import Answer, Detector, Example, View, symptom
from dflash_watch.detectors.examples import PID, example, frames, process
from dflash_watch.detectors.stuck import is_silent, stuck_threads
from dflash_watch.model import Severity, Source
from dflash_watch.units import duration
from dflash_watch.window.crew import leaders
from dflash_watch.window.tracks import ProcessTrack, how_it_ended

SIGTERM = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Limits."""

    before_s: float = 30.0
    """Batches that were ready last for so long after it vanished."""


def detect(view: View, params: Params) -> Iterator[Answer]:
    """By the signal that ended it, else by who waits for it."""
    for one in view.window.tracks.in_state("ZX"):
        code, how = how_it_ended(one.sample.exit_code)
        if _is_child(view, one) and code is not None and code < 0 and code != -SIGTERM:
            who = f"process {one.sample.pid}"
            text = f"{who}, a child of the run, {how}"
            yield symptom(who, Severity.CRITICAL, one.track.state_since_t, text, Source.PROCESS)
            return
    last_t = view.progress.last_step_t
    if last_t is None or not is_silent(view):
        return
    if not any(one.place == "data" for one in stuck_threads(view)):
        return
    for one in view.window.tracks.gone_processes:
        gone_t = one.track.gone_t or 0.0
        if _is_child(view, one) and gone_t >= last_t - params.before_s:
            who = f"process {one.sample.pid}"
            ago = duration(max(view.now_t - gone_t, 0.0))
            text = f"{who}, a worker of the data loader, vanished {ago} ago"
            yield symptom(who, Severity.CRITICAL, gone_t, text, Source.PROCESS)


def _is_child(view: View, one: ProcessTrack) -> bool:
    """Was it started by a process that trains: the main one, or that of any rank."""
    main = view.window.main()
    trainers = [*leaders(view.window.tracks).values(), *([main] if main is not None else [])]
    parent = next((each for each in trainers if each.sample.pid == one.sample.ppid), None)
    if parent is None or not one.sample.is_python:
        return False
    own = one.sample.cmd == parent.sample.cmd
    return own or "multiprocessing" in one.sample.cmd or one.track.state in "ZX"


def firing() -> Example:
    """Ended by signal 9, and nobody has collected it."""
    dead = frames(
        6,
        processes=lambda i: (
            process(i),
            process(i, pid=PID + 1, ppid=PID, state="Z", exit_code=9, start_ticks=600),
        ),
    )
    return example(dead, subject=f"process {PID + 1}")


def clear() -> Example:
    """It ended as it should."""
    both = frames(3, processes=lambda i: (process(i), process(i, pid=PID + 1, ppid=PID)))
    return example(both, frames(20, start=3))


DETECTOR = Detector(detect=detect, params=Params(), firing=firing, clear=clear)
