"""Memory of a GPU that the run uses is held by somebody else.

Sees:       processes that the driver lists on that GPU, against the run's own; memory in use
            beyond what all of them hold.
Means:      another job, a leftover of a dead one, or a process outside this container.
Wrong when: the run's own processes hold it through a server of the driver (MPS).
Source:     docs/frames.md, GpuSample and GpuProcess.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dflash_watch.detectors.base import Answer, Detector, Example, View, missing, symptom
from dflash_watch.detectors.examples import example, frames, process
from dflash_watch.frame import GpuProcess, GpuSample
from dflash_watch.model import Severity, Source
from dflash_watch.units import gib
from dflash_watch.window.gpus import GpuTrack


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Limits."""

    least_bytes: int = 3 * 2**30
    """Contexts, displays and the driver's own share stay below."""
    least_ratio: float = 0.04
    """Of the card."""


def detect(view: View, params: Params) -> Iterator[Answer]:
    """Each GPU on which a process of the run is listed."""
    for index, track in view.window.gpus.tracks.items():
        sample = track.sample
        listed = sample.processes
        if sample.state != "ok" or not listed or sample.memory_used_bytes is None:
            continue
        own = [one for one in listed if view.window.tracks.process(one.pid) is not None]
        if not own:
            continue  # not this run's card, or nobody can tell whose numbers these are
        if any(one.memory_bytes is None for one in listed):
            yield missing(f"gpu{index}", "how much memory each process holds: the driver hides it")
            continue
        least = max(params.least_bytes, params.least_ratio * (sample.memory_total_bytes or 0))
        yield from _judge(index, track, own, least)


def _judge(
    index: int, track: GpuTrack, own: list[GpuProcess], least_bytes: float
) -> Iterator[Answer]:
    listed, used = track.sample.processes or (), track.sample.memory_used_bytes or 0
    others = [one for one in listed if one not in own]
    theirs = sum(one.memory_bytes or 0 for one in others)
    nobodys = used - theirs - sum(one.memory_bytes or 0 for one in own)
    if theirs < least_bytes and nobodys < least_bytes:
        return
    mine = gib(sum(one.memory_bytes or 0 for one in own))
    if theirs >= least_bytes:
        pids = ", ".join(str(one.pid) for one in others[:4])
        text = f"gpu{index}: {gib(theirs)} GiB are held by other processes ({pids})"
    else:
        text = f"gpu{index}: {gib(nobodys)} GiB are held by no process that is listed"
    text += f", the run holds {mine} of {gib(used)} GiB in use"
    yield symptom(f"gpu{index}", Severity.WARNING, track.seen_t, text, Source.GPU)


def _run(*others: GpuProcess, used: int = 20) -> Example:
    own = GpuProcess(pid=10, memory_bytes=19 * 2**30, pid_space="container")
    card = GpuSample(
        index=0, memory_used_bytes=used * 2**30, memory_total_bytes=140 * 2**30,
        processes=(own, *others),
    )  # fmt: skip
    return example(frames(3, gpus=(card,), processes=lambda i: (process(i),)))


def firing() -> Example:
    """A stranger holds twelve GiB."""
    told = _run(GpuProcess(pid=999, memory_bytes=12 * 2**30), used=32)
    return Example(records=told.records, subject="gpu0")


def clear() -> Example:
    """A display holds a little."""
    return _run(GpuProcess(pid=999, memory_bytes=2**28))


DETECTOR = Detector(detect=detect, params=Params(), firing=firing, clear=clear)
