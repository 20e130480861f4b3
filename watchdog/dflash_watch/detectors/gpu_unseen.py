"""The GPUs, or one of them, no longer answer.

Sees:       a gap of the GPU source where GPUs are expected, and rows that are lost or failed.
Means:      the view is broken (version mismatch, refused, hung call), or the card fell off.
Wrong when: a machine without GPUs whose driver library lies around.
Source:     docs/frames.md, Gap and GpuSample.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import msgspec

from dflash_watch.detectors.base import Answer, Detector, Example, View, missing, symptom
from dflash_watch.detectors.examples import example, frames
from dflash_watch.frame import Gap, GpuSample
from dflash_watch.model import Severity, Source
from dflash_watch.units import duration

SMI = "nvidia-smi on the host: does it answer there? Then the host's view is the one to watch"
NODES = "ls -l /dev/nvidia* here and on the host: same nodes, same major numbers, readable?"
LIBRARY = (
    "cat /proc/driver/nvidia/version on the host against the library here: install the same"
    " version here, or reload the driver once no job uses it"
)
RELOAD = (
    "a systemd daemon-reload on the host takes the devices from running containers: start the"
    " container anew once the run is over, with its device nodes given by name"
)
ADVICE: Mapping[str, tuple[str, ...]] = {
    "mismatch": (
        "leave running jobs alone: they keep what they have loaded, only new ones fail",
        LIBRARY,
    ),
    "unknown-error": (
        NODES,
        RELOAD,
    ),
    "lost": (
        "dmesg --ctime | grep -iE 'nvrm|xid|aer' on the host: which card, since when?",
        "save what can be saved: a machine with a lost card has to be restarted",
    ),
    "not-loaded": (SMI, NODES),
    "no-permission": (NODES, "watch as a user who may open them, or from the host"),
    "no-library": (SMI, "put the host's own version of libnvidia-ml.so.1 into this container"),
    "no-answer": (
        "start no further tool against the driver: each one hangs as well",
        "ps -e -o pid,stat,wchan:30,cmd | grep ' D' on the host: who else is held, and where?",
    ),
}
"""Cause of the gap -> what to do about this very one."""


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
            unseen = symptom("host", Severity.WARNING, since_t, text, Source.GPU)
            yield msgspec.structs.replace(unseen, next=ADVICE.get(gap.cause or "", ()))
        else:
            yield missing("host", f"GPUs: {gap.reason}")
        return
    for index, track in window.gpus.tracks.items():
        sample = track.sample
        if sample.state != "ok":
            told = next(iter(sample.errors.values()), sample.state)
            text = f"gpu{index} is {sample.state}: {told}"
            yield symptom(f"gpu{index}", Severity.WARNING, track.seen_t, text, Source.GPU)
        elif sample.mig and sample.utilization_ratio is None:
            yield missing(f"gpu{index}", "what it does: it is cut into instances (MIG)")


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
