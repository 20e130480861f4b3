"""A forked process waits for a lock that nobody in it can open.

Sees:       stack samples of child processes: all its threads wait for a lock of their own process,
            none moves, and the process was made by fork.
Means:      the lock was held by another thread of the parent at the moment of the fork; that
            thread does not exist in the child, so the lock stays shut for ever.
Wrong when: the lock lies in shared memory after all (a library's own semaphore).
Source:     fork(2); readers/places.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dflash_watch.detectors.base import Answer, Detector, Example, View, symptom
from dflash_watch.detectors.examples import PID, example, frames, process, stacks, standing
from dflash_watch.detectors.stuck import Stuck, is_silent, stuck_threads
from dflash_watch.model import Evidence, EvidenceKind, Severity, Source
from dflash_watch.readers.places import is_forked, waits_for_own_lock


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """None: a step is due by the learned limit."""


def detect(view: View, _params: Params) -> Iterator[Answer]:
    """Each such process."""
    if not is_silent(view):
        return
    by_process: dict[int, list[Stuck]] = {}
    for one in stuck_threads(view):
        by_process.setdefault(one.pid, []).append(one)
    for pid, stuck in by_process.items():
        if not _nobody_can_open(view, pid, stuck):
            continue
        text = f"process {pid}, made by fork, waits for a lock that nobody in it can open:"
        text += f" {stuck[0].leaf} {stuck[0].how}"
        since_t = view.now_t - (view.age_s() or view.progress.still_s(view.window))
        subject = f"process {pid}" if pid != view.window.main_pid() else "run"
        yield symptom(subject, Severity.CRITICAL, since_t, text, Source.STACKS, *_parent(view, pid))


def _nobody_can_open(view: View, pid: int, stuck: Sequence[Stuck]) -> bool:
    if not all(waits_for_own_lock(one.frames, one.wait) for one in stuck):
        return False
    if not any(is_forked(one.frames) for one in stuck):
        return False
    compared = view.standing.get(pid)
    if compared is None:
        return True
    return len([one for one in compared.threads if not one.helper]) == len(stuck)


def _parent(view: View, pid: int) -> Iterator[Evidence]:
    child = view.window.tracks.process(pid)
    parent = view.window.tracks.process(child.sample.ppid) if child is not None else None
    if parent is not None and (parent.sample.num_threads or 0) > 1:
        text = f"its parent {parent.sample.pid} has {parent.sample.num_threads} threads"
        yield Evidence(kind=EvidenceKind.FOR, text=text, source=Source.PROCESS)


def firing() -> Example:
    """A worker at a lock of the logging module, its parent waits for it."""
    return _child_at("logging/__init__.py:acquire")


def clear() -> Example:
    """An idle worker of a pool stands at a lock that other processes open."""
    return example(*_child_at("multiprocessing/synchronize.py:__enter__").records)


def _child_at(leaf: str) -> Example:
    places = (leaf, "multiprocessing/process.py:run", "multiprocessing/popen_fork.py:_launch")
    both = frames(
        30,
        processes=lambda i: (
            process(i, cpu_ticks=1000 + 50 * min(i, 14), num_threads=3),
            process(i, pid=PID + 1, ppid=PID, cpu_ticks=5, start_ticks=600),
        ),
        events=lambda i: (
            ({"kind": "throughput", "seq": i + 1, "t": 1_790_000_000.0 + i, "step": i + 1},)
            if i < 14
            else ()
        ),
    )
    wait = standing(20, "MainThread", *places, wchan="futex_wait_queue")
    main = standing(10, "MainThread", "selectors.py:select", "train.py:step")
    samples = [
        made
        for label, i in (("A", 26), ("B", 29))
        for made in (stacks(label, i, main), stacks(f"{label}/{PID + 1}", i, wait, pid=PID + 1))
    ]
    return example(both, *samples, subject=f"process {PID + 1}")


DETECTOR = Detector(detect=detect, params=Params(), firing=firing, clear=clear)
