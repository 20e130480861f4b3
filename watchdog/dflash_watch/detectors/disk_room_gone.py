"""No room is left where the run writes.

Sees:       free bytes and inodes of the file systems of run directory, log and scratch space.
Means:      the next checkpoint or log line fails, or already did.
Wrong when: a quota or a file-size limit of the process ends it earlier: neither is seen here.
Source:     statvfs(3); docs/frames.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dflash_watch.detectors.base import Answer, Detector, Example, View, missing, symptom
from dflash_watch.detectors.examples import example, frames
from dflash_watch.frame import Disk, HostSample
from dflash_watch.model import Severity, Source
from dflash_watch.units import data_size


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Limits."""

    least_bytes: int = 4 << 20
    """Less than this holds no checkpoint and hardly a log."""
    least_ratio: float = 0.05
    """Of its size: a small scratch disk may be smaller than that altogether."""
    own: frozenset[str] = frozenset({"run-dir", "log"})
    """Places the run surely writes to; of others only a hint is given."""


def detect(view: View, params: Params) -> Iterator[Answer]:
    """Each file system once, by the most telling of its places."""
    host = view.window.frame.host if view.window.frame is not None else None
    if host is None or not host.disks:
        yield missing("host", "room on the disks the run writes to")
        return
    told: set[tuple[int, int]] = set()
    for disk in sorted(host.disks, key=lambda one: one.what not in params.own):
        same = (disk.total_bytes, disk.free_bytes)
        least_bytes = min(params.least_bytes, params.least_ratio * disk.total_bytes)
        if disk.what == "shm" or same in told or not is_full(disk, least_bytes):
            continue
        told.add(same)
        since_t = view.window.rooms.full_since_t(disk.path, least_bytes) or view.now_t
        text = f"{data_size(disk.free_bytes)} free of {data_size(disk.total_bytes)} at {disk.path}"
        if disk.free_inodes == 0:
            text = f"no inode is free at {disk.path}: no file can be made"
        own = disk.what in params.own
        severity = Severity.CRITICAL if own else Severity.WARNING
        yield symptom("host", severity, since_t, text, Source.HOST, starts=own)


def is_full(disk: Disk, least_bytes: float) -> bool:
    """Less is free than counts; a pseudo file system without any size is not full."""
    return disk.total_bytes > 0 and (disk.free_bytes < least_bytes or disk.free_inodes == 0)


def room(free_bytes: int, what: str = "run-dir", path: str = "/runs/a") -> HostSample:
    """A host with one disk, for examples."""
    disk = Disk(path=path, what=what, free_bytes=free_bytes, total_bytes=64 << 30, free_inodes=9)
    return HostSample(disks=(disk,))


def firing() -> Example:
    """Nothing left."""
    return example(frames(3, host=room(0)), subject="host")


def clear() -> Example:
    """A gigabyte left."""
    return example(frames(3, host=room(1 << 30)))


DETECTOR = Detector(detect=detect, params=Params(), firing=firing, clear=clear)
