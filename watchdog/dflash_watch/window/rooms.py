"""Since when there is how little room on the disks: the only history that is kept of them."""

from __future__ import annotations

from collections import deque

from dflash_watch.frame import HostSample

KEPT = 600
"""Changes of one place; a disk that fills slowly is dated by them."""
PLACES = 16


class Rooms:
    """Free bytes of each place over time, changes only."""

    def __init__(self) -> None:
        self._free: dict[str, deque[tuple[float, int]]] = {}

    def take(self, t: float, host: HostSample | None) -> None:
        """Take one look."""
        for disk in host.disks if host is not None else ():
            if disk.path not in self._free and len(self._free) >= PLACES:
                continue
            seen = self._free.setdefault(disk.path, deque(maxlen=KEPT))
            if not seen or seen[-1][1] != disk.free_bytes:
                seen.append((t, disk.free_bytes))

    def full_since_t(self, path: str, least_bytes: float) -> float | None:
        """Since when less than this was free without a break; None when more is, or not known."""
        since_t = None
        for t, free in reversed(self._free.get(path, ())):
            if free >= least_bytes:
                break
            since_t = t
        return since_t
