"""What a run is busy with when it does not say: compilers, large writes, a load into memory.

Positive evidence only, from the process tree: rates over seconds, never one look. Pure.
"""

from __future__ import annotations

import re

from dflash_watch.units import data_size
from dflash_watch.window import Window
from dflash_watch.window.tracks import ProcessTrack

OVER_S = 3.0
WRITES = 8 * 2**20
"""Bytes a second that no log writes: a checkpoint."""
READS = 8 * 2**20
"""Bytes a second of weights or data before the first step."""
GROWS = 32 * 2**20
"""Bytes a second by which memory grows while mapped weights are read."""
WORKS_S = 10.0
"""A compiler that gained CPU time so lately works; one that is parked does not."""
COMPILES = 0.2
"""Cores of a compile worker of the framework; parked ones stay far below."""
COMPILERS = re.compile(
    r"^(cc1(plus)?|gcc|g\+\+|c\+\+|clang\S*|as|ld(\.\w+)?|lld|nvcc|ptxas|cicc|cudafe\+\+|fatbinary"
    r"|nvlink|hipcc|ninja|collect2|neuronx?-cc|triton\S*)$"
)
COMPILE_WORKER = re.compile(r"torch/_inductor/compile_worker|compile_worker\b|subproc_pool")


def is_compiler(comm: str) -> bool:
    """Is a process of this name a compiler, assembler or linker?"""
    return COMPILERS.match(comm) is not None


def busy_compiler(window: Window) -> str | None:
    """Name of a compiler among the children that works."""
    for one in window.tracks.processes.values():
        if is_compiler(one.sample.comm) and _works(one):
            return one.sample.comm
        if COMPILE_WORKER.search(one.sample.cmd) and _cores(window, one) >= COMPILES:
            return "compile worker"
    return None


def large_writes(window: Window) -> str | None:
    """The tree writes far more than a log does."""
    rate = window.tracks.written_per_s(_since(window))
    return f"writes {data_size(rate)}/s" if rate is not None and rate >= WRITES else None


def large_loads(window: Window) -> str | None:
    """The tree reads much, or its memory grows fast."""
    rate = window.tracks.read_per_s(_since(window))
    if rate is not None and rate >= READS:
        return f"reads {data_size(rate)}/s"
    growth = window.tracks.grown_per_s(_since(window))
    return f"memory grows by {data_size(growth)}/s" if growth and growth >= GROWS else None


def _since(window: Window) -> float:
    return window.frame.boot_s - OVER_S if window.frame is not None else 0.0


def _works(one: ProcessTrack) -> bool:
    track = one.track
    lately_t = max(track.moved_t or 0.0, track.first_t)
    return track.state in "RD" or track.last_t - lately_t < WORKS_S


def _cores(window: Window, one: ProcessTrack) -> float:
    used = one.track.used_ticks(_since(window))
    return used[0] / window.ticks_per_s / used[1] if used is not None and used[1] > 0 else 0.0
