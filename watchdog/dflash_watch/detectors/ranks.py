"""Processes of the run that hold a GPU each, and what both do. No detector of its own."""

from __future__ import annotations

from dataclasses import dataclass

from dflash_watch.detectors.base import View
from dflash_watch.window.gpuload import SPINNING, Load
from dflash_watch.window.gpus import GpuTrack
from dflash_watch.window.tracks import ProcessTrack

CPU_WINDOW_S = 5.0
SLEEPS, BURNS = 0.02, 0.5
"""Cores of one process: below it sleeps, above it computes or spins."""
IO_MOVES = 64 * 1024.0
"""Bytes a second below which nothing is read or written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """One process of the run on its GPU."""

    name: str
    """`rank-1` where its process says so, else its worker's name, else `gpu1`."""
    gpu: int
    process: ProcessTrack
    card: GpuTrack
    cores: float | None
    """In use over the newest seconds; None with one look."""
    io_per_s: float | None

    @property
    def spins(self) -> bool:
        """Its card runs a kernel that does nothing."""
        return self.card.reading is not None and self.card.reading.load in SPINNING

    @property
    def rests(self) -> bool:
        """Its card does nothing."""
        return self.card.reading is not None and self.card.reading.load is Load.IDLE

    @property
    def sleeps(self) -> bool:
        """Its process neither computes nor reads nor writes."""
        if self.cores is None or self.cores > SLEEPS or self.process.track.state != "S":
            return False
        return (self.io_per_s or 0.0) < IO_MOVES

    @property
    def gpu_text(self) -> str:
        """What its card does, in figures."""
        return "" if self.card.reading is None else self.card.reading.text


def ranks_of(view: View) -> tuple[Rank, ...]:
    """Processes of the run with a GPU, one each, by GPU; empty where the driver names none."""
    window = view.window
    if window.frame is None:
        return ()
    since_boot_s = window.frame.boot_s - CPU_WINDOW_S
    found = []
    for index, card in sorted(window.gpus.tracks.items()):
        held = [window.tracks.process(one.pid) for one in card.sample.processes or ()]
        own = [one for one in held if one is not None and one.sample.is_python]
        if card.sample.state != "ok" or not own:
            continue
        process = max(own, key=lambda one: one.sample.rss_bytes or 0)
        used = process.track.used_ticks(since_boot_s)
        cores = None if used is None or used[1] <= 0 else used[0] / window.ticks_per_s / used[1]
        found.append(
            Rank(
                name=_name(view, process, index), gpu=index, process=process, card=card,
                cores=cores, io_per_s=_io(process, since_boot_s),
            )
        )  # fmt: skip
    return tuple(found)


def _io(process: ProcessTrack, since_boot_s: float) -> float | None:
    looks = [look for look in process.io if look[0] >= since_boot_s]
    if len(looks) < 2 or looks[-1][0] <= looks[0][0]:
        return None
    moved = looks[-1][1] - looks[0][1] + looks[-1][2] - looks[0][2]
    return max(moved, 0) / (looks[-1][0] - looks[0][0])


def _name(view: View, process: ProcessTrack, index: int) -> str:
    if process.sample.rank is not None:
        return f"rank-{process.sample.rank}"
    for worker in view.window.manifest.get("workers") or ():
        if worker.get("pid") == process.sample.pid and worker.get("name"):
            return str(worker["name"])
    return f"gpu{index}"
