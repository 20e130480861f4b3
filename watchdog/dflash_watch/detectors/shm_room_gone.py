"""Shared memory is full.

Sees:       free bytes of `/dev/shm` as the run sees it.
Means:      data-loader workers, collectives and the beat page cannot hand anything over.
Wrong when: a run fills it on purpose and keeps what it has.
Source:     statvfs(3); docs/frames.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dflash_watch.detectors.base import Answer, Detector, Example, View, missing, symptom
from dflash_watch.detectors.disk_room_gone import room
from dflash_watch.detectors.examples import example, frames
from dflash_watch.model import Severity, Source
from dflash_watch.units import data_size


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Limits."""

    share: float = 0.01
    """Of its size; containers get 64 MiB of it, machines half of their memory."""
    least_bytes: int = 1 << 20
    most_bytes: int = 16 << 20
    """No batch is larger than what this leaves."""


def detect(view: View, params: Params) -> Iterator[Answer]:
    """Free bytes below the limit."""
    host = view.window.frame.host if view.window.frame is not None else None
    disk = next((one for one in host.disks if one.what == "shm"), None) if host else None
    if disk is None:
        yield missing("host", "room in shared memory")
        return
    limit = min(max(params.share * disk.total_bytes, params.least_bytes), params.most_bytes)
    if disk.total_bytes <= 0 or disk.free_bytes >= limit:
        return
    since_t = view.window.rooms.full_since_t(disk.path, limit) or view.now_t
    free, total = data_size(disk.free_bytes), data_size(disk.total_bytes)
    text = f"{disk.path} is full: {free} free of {total}"
    yield symptom("host", Severity.CRITICAL, since_t, text, Source.HOST)


def firing() -> Example:
    """Nothing left."""
    return example(frames(3, host=room(0, "shm", "/dev/shm")), subject="host")  # noqa: S108 - a name


def clear() -> Example:
    """Room enough."""
    return example(frames(3, host=room(1 << 30, "shm", "/dev/shm")))  # noqa: S108 - a name


DETECTOR = Detector(detect=detect, params=Params(), firing=firing, clear=clear)
