"""Links between GPUs that were up are down.

Sees:       the number of NVLinks that are up on each card, against the most that were.
Means:      a link, a connector or a switch failed: collectives across it stop or crawl.
Wrong when: somebody else's card, or links that the driver rests between two uses.
Source:     docs/frames.md, GpuSample, `nvlinks_active`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dflash_watch.detectors.base import Answer, Detector, Example, View, symptom
from dflash_watch.detectors.examples import example, frames
from dflash_watch.frame import GpuSample
from dflash_watch.model import Severity, Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """None."""


def detect(view: View, _params: Params) -> Iterator[Answer]:
    """Each card that the run uses."""
    gpus = view.window.gpus
    for index, track in gpus.tracks.items():
        now, most = track.sample.nvlinks_active, track.most_links
        if now is None or most is None or now >= most or track.sample.state != "ok":
            continue
        if gpus.is_used(index, view.window.tracks.pids()):
            text = f"gpu{index}: {most - now} of {most} NVLinks are down"
            yield symptom(f"gpu{index}", Severity.CRITICAL, track.seen_t, text, Source.GPU)


def _run(*counts: int) -> Example:
    def cards(i: int) -> tuple[GpuSample, ...]:
        return (GpuSample(index=0, memory_used_bytes=1, nvlinks_active=counts[i]),)

    down = counts[-1] < max(counts)
    return example(frames(len(counts), gpus=cards), subject="gpu0" if down else None)


def firing() -> Example:
    """One of eighteen."""
    return _run(18, 18, 17)


def clear() -> Example:
    """A card with fewer links by design."""
    return _run(12, 12, 12)


DETECTOR = Detector(detect=detect, params=Params(), firing=firing, clear=clear)
