"""A GPU counts memory errors that it could not correct, since it is watched.

Sees:       the driver's count of uncorrected errors against the first one read.
Means:      numbers computed there may be wrong, and the driver may end the process.
Wrong when: never: counts from before the first look are left out.
Source:     docs/frames.md, GpuSample, `ecc_uncorrected`.
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
        now, first = track.sample.ecc_uncorrected, track.first_ecc
        if now is None or first is None or now <= first:
            continue
        if gpus.is_used(index, view.window.tracks.pids()):
            text = f"gpu{index} counts {now - first} uncorrected memory errors since it is watched"
            yield symptom(f"gpu{index}", Severity.CRITICAL, track.seen_t, text, Source.GPU)


def _run(*counts: int) -> Example:
    def cards(i: int) -> tuple[GpuSample, ...]:
        return (GpuSample(index=0, memory_used_bytes=1, ecc_uncorrected=counts[i]),)

    risen = counts[-1] > counts[0]
    return example(frames(len(counts), gpus=cards), subject="gpu0" if risen else None)


def firing() -> Example:
    """Two more than at first."""
    return _run(1, 1, 3)


def clear() -> Example:
    """Old errors."""
    return _run(7, 7, 7)


DETECTOR = Detector(detect=detect, params=Params(), firing=firing, clear=clear)
