"""The GPUs, or one of them, no longer answer.

Sees:       a gap of the GPU source where GPUs are expected, and rows that are lost or failed.
Means:      the view is broken (version mismatch, refused, hung call), or the card fell off.
Wrong when: a machine without GPUs whose driver library lies around.
Source:     docs/frames.md, Gap and GpuSample.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from dflash_watch.detectors.base import Answer, Detector, Example, View, missing, symptom
from dflash_watch.detectors.examples import example, frames
from dflash_watch.frame import Gap, GpuSample
from dflash_watch.model import Severity, Source
from dflash_watch.units import duration


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """What tells a broken view from a machine without GPUs."""

    broken: str = (
        r"mismatch|refused|permission|hung|no answer|not answer|unknown error|timed? ?out|lost"
    )


def detect(view: View, params: Params) -> Iterator[Answer]:
    """The whole source, or single cards."""
    window = view.window
    gap = window.gaps.get("gpu")
    expected = bool(window.gpus.tracks) or _uses_gpus(view)
    if gap is not None:
        if expected or re.search(params.broken, gap.reason, re.IGNORECASE):
            text = gap.reason
            if gap.since_s is not None and gap.since_s >= 1:
                text += f" (for {duration(gap.since_s)})"
            since_t = window.gap_since_t.get("gpu", view.now_t)
            yield symptom("host", Severity.WARNING, since_t, text, Source.GPU)
        else:
            yield missing("host", f"GPUs: {gap.reason}")
        return
    for index, track in window.gpus.tracks.items():
        sample = track.sample
        if sample.state != "ok":
            told = next(iter(sample.errors.values()), sample.state)
            text = f"gpu{index} is {sample.state}: {told}"
            yield symptom(f"gpu{index}", Severity.WARNING, track.seen_t, text, Source.GPU)


def _uses_gpus(view: View) -> bool:
    workers = view.window.manifest.get("workers") or ()
    return any(str(worker.get("device") or "").startswith("cuda") for worker in workers)


def firing() -> Example:
    """One card falls off the bus."""
    good = (GpuSample(index=0, memory_used_bytes=1), GpuSample(index=1, memory_used_bytes=1))
    lost = (good[0], GpuSample(index=1, state="lost", errors={"all": "GPU is lost"}))
    return example(frames(2, gpus=good), frames(1, start=2, gpus=lost), subject="gpu1")


def clear() -> Example:
    """A machine without GPUs."""
    none = (Gap(source="gpu", reason="no NVIDIA driver library here"),)
    return example(frames(2, gaps=none))


DETECTOR = Detector(detect=detect, params=Params(), firing=firing, clear=clear)
