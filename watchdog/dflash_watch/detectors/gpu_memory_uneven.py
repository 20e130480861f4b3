"""One GPU holds far less or far more memory than its siblings of the same role.

Sees:       memory in use against the median of the other GPUs of that role.
Means:      half loaded, its worker died, or somebody else's process sits on it.
Wrong when: roles are wrong, or shards differ in size by design.
Source:     docs/frames.md, GpuSample.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass

from dflash_watch.detectors.base import Answer, Detector, Example, View, missing, symptom
from dflash_watch.detectors.examples import example, frames
from dflash_watch.frame import GpuSample
from dflash_watch.model import RunOptions, Severity, Source
from dflash_watch.roles import gpu_roles
from dflash_watch.units import gib, percent


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Limits."""

    low: float = 0.6
    """Share of the siblings' median below which it is uneven."""
    high: float = 1.8
    """And above which."""
    least_bytes: int = 4 * 2**30
    """Differences below this do not matter."""


def detect(view: View, params: Params) -> Iterator[Answer]:
    """Each GPU against the others of its role."""
    roles = gpu_roles(view.window, view.options)
    if not roles:
        if view.window.gpus.tracks:
            yield missing("run", "which GPU does what: say it with --roles")
        return
    for role in dict.fromkeys(roles.values()):
        held = {
            index: used
            for index, own in roles.items()
            if own == role and (used := _used(view, index)) is not None
        }
        for index, used in held.items():
            yield from _judge(view, index, used, held, params)


def _judge(
    view: View, index: int, used: int, held: dict[int, int], params: Params
) -> Iterator[Answer]:
    """One GPU against the median of its role; of two, against the other."""
    group = list(held.values())
    if len(group) < 2:
        return
    median = statistics.median(group) if len(group) > 2 else sum(group) - used
    if abs(used - median) < params.least_bytes or not median:
        return
    ratio = used / median
    if not params.low <= ratio <= params.high:
        text = f"gpu{index} holds {gib(used)} GiB, {percent(ratio)} of its siblings' median"
        started = view.progress.first_step_t is not None
        yield symptom(f"gpu{index}", Severity.WARNING, view.now_t, text, Source.GPU, starts=started)


def _used(view: View, index: int) -> int | None:
    track = view.window.gpus.tracks.get(index)
    return track.sample.memory_used_bytes if track is not None else None


def _cards(*gibs: int) -> tuple[GpuSample, ...]:
    return tuple(
        GpuSample(index=index, memory_used_bytes=gib_ * 2**30) for index, gib_ in enumerate(gibs)
    )


ROLES = RunOptions(roles={"drafter": (0, 1, 2)})


def firing() -> Example:
    """43 beside 97 and 77 GB, as in the field."""
    made = example(frames(2, gpus=_cards(43, 97, 77)), subject="gpu0")
    return Example(records=made.records, subject=made.subject, options=ROLES)


def clear() -> Example:
    """Near each other."""
    return Example(records=example(frames(2, gpus=_cards(79, 80, 76))).records, options=ROLES)


DETECTOR = Detector(detect=detect, params=Params(), firing=firing, clear=clear)
