"""Part of the run waits inside the kernel for storage.

Sees:       processes and threads in state D without any CPU ticks over successive looks, in a file
            system or in an unnamed place, not in a device driver; log files that do not answer;
            the kernel's own words, on the host of a container too.
Means:      a mount does not answer (network storage, a dying disk); signals do not help.
Wrong when: a slow disk writes one large checkpoint in a single call.
Source:     proc(5), /proc/PID/stat and wchan.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from dflash_watch.detectors.base import Answer, Detector, Example, View, symptom
from dflash_watch.detectors.examples import example, frames, process
from dflash_watch.model import Evidence, EvidenceKind, Severity, Source
from dflash_watch.units import duration
from dflash_watch.window.tracks import DISK, Track

DRIVER = re.compile(r"nvidia|uvm|nv_|\bnv\w*_ioctl|amdgpu|kfd|habana|os_acquire_rwlock")
"""Kernel functions of a device driver: `driver-stuck`, not storage."""
KERNEL_WORDS = re.compile(
    r"not responding|blocked for more than|I/O error|EXT4-fs error|LustreError|libceph",
    re.IGNORECASE,
)
"""What the kernel says when storage does not answer."""
NO_ANSWER = re.compile(r"no answer", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Limits."""

    least_s: float = 10.0
    """Shorter waits are ordinary."""
    looks: int = 3
    """Looks in a row; threads, where there are many, are looked at every 5 s."""


def detect(view: View, params: Params) -> Iterator[Answer]:
    """The main process as `run`; its threads and children only while a step is due."""
    mounts = [
        Evidence(kind=EvidenceKind.FOR, text=f"files: {gap.reason}", source=Source.LOG)
        for name, gap in view.window.gaps.items()
        if name == "log" and NO_ANSWER.search(gap.reason)
    ]
    mounts += [
        Evidence(kind=EvidenceKind.FOR, text=f"kernel: {line[:160]}", source=Source.HOST)
        for line in view.window.kernel_words(KERNEL_WORDS)
    ]
    found = list(_standing(view))
    by_driver = any(DRIVER.search(wchan or "") for _, _, _, wchan in found)
    for subject, what, track, wchan in found:
        if DRIVER.search(wchan or "") or (by_driver and wchan is None):
            continue
        still_s = track.last_t - track.state_since_t
        moved = (track.moved_t or 0.0) > track.state_since_t
        if still_s < params.least_s or track.state_looks < params.looks or moved:
            continue
        text = f"{what} in state D for {duration(still_s)}, in {wchan or 'an unnamed place'}"
        yield symptom(
            subject, Severity.CRITICAL, track.state_since_t, text, Source.PROCESS, *mounts
        )
        return


def _standing(view: View) -> Iterator[tuple[str, str, Track, str | None]]:
    """Subject, words, track and kernel function of what is in state D, the main process first."""
    window, main = view.window, view.window.main()
    processes = sorted(window.tracks.in_state(DISK), key=lambda one: one is not main)
    for process_ in processes:
        sample, own = process_.sample, process_ is main
        if own or view.is_due():
            subject = "run" if own else f"process {sample.pid}"
            yield subject, f"process {sample.pid}", process_.track, sample.wchan
    if not view.is_due():
        return
    for (pid, tid), track in window.tracks.threads.items():
        if track.state == DISK:
            name = window.thread_name(pid, tid) or f"thread {tid}"
            yield name, f"{name} of process {pid}", track, track.wchan


def firing() -> Example:
    """Twelve seconds in a network file system."""
    stuck = frames(13, processes=lambda i: (process(i, state="D", cpu_ticks=5, wchan="nfs_wait"),))
    return example(stuck, subject="run")


def clear() -> Example:
    """Twelve seconds in the driver of the cards."""
    stuck = frames(13, processes=lambda i: (process(i, state="D", cpu_ticks=5, wchan="uvm_ioctl"),))
    return example(stuck)


DETECTOR = Detector(detect=detect, params=Params(), firing=firing, clear=clear)
