"""A GPU that the run uses is lost: the driver says so, or lists it no more.

Sees:       the state of each card, which cards are listed at all, by their UUIDs, and which
            processes were listed there while it answered.
Means:      the card fell off the bus; what ran on it cannot go on.
Wrong when: nobody could tell which cards the run uses, and the lost one is somebody else's.
Source:     docs/frames.md, GpuSample.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dflash_watch.detectors.base import Answer, Detector, Example, View, symptom
from dflash_watch.detectors.examples import example, frames, process
from dflash_watch.frame import GpuProcess, GpuSample
from dflash_watch.model import Severity, Source
from dflash_watch.roles import gpu_roles


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """None."""


def detect(view: View, _params: Params) -> Iterator[Answer]:
    """Cards in state `lost`, or gone from the list, that are the run's."""
    gpus, roles = view.window.gpus, gpu_roles(view.window, view.options)
    pids = view.window.tracks.pids() | {one.sample.pid for one in view.window.tracks.gone_processes}
    for index, track in gpus.tracks.items():
        mine = index in roles if roles else gpus.is_used(index, pids)
        if track.sample.state != "lost" or not mine:
            continue
        told = next(iter(track.sample.errors.values()), "the driver gives no reason")
        text = f"gpu{index} is lost: {told}"
        yield symptom(f"gpu{index}", Severity.CRITICAL, track.seen_t, text, Source.GPU)

    for track in gpus.vanished.values():
        index = track.sample.index
        mine = index in roles if roles else not track.pids or bool(track.pids & pids)
        if mine:
            where = f" (bus {track.sample.pci})" if track.sample.pci else ""
            text = f"gpu{index}{where} is not listed any more: the driver names"
            text += f" {len(gpus.tracks)} cards, and numbers may have moved up"
            yield symptom(f"gpu{index}", Severity.CRITICAL, track.seen_t, text, Source.GPU)


def _run(user: int) -> Example:
    """Two cards; the second one is lost. The run is on it, or only on the first."""

    def cards(i: int) -> tuple[GpuSample, ...]:
        own = GpuProcess(pid=10, memory_bytes=2**30)
        first = GpuSample(index=0, memory_used_bytes=1, processes=(own,) if user != 1 else ())
        if i >= 2:
            return first, GpuSample(index=1, state="lost", errors={"device": "GPU is lost"})
        used = (own,) if user == 1 else ()
        return first, GpuSample(index=1, memory_used_bytes=1, processes=used)

    told = frames(4, gpus=cards, processes=lambda i: (process(i),))
    return example(told, subject="gpu1" if user == 1 else None)


def firing() -> Example:
    """The run's own card."""
    return _run(1)


def clear() -> Example:
    """Somebody else's."""
    return _run(0)


DETECTOR = Detector(detect=detect, params=Params(), firing=firing, clear=clear)
