"""The scenes of `--demo`: every state of the banner, and the failures people meet most."""

from __future__ import annotations

from collections.abc import Callable
from datetime import tzinfo
from typing import Final

from dflash_watch.model import Snapshot

from dflash_tui.demo import calm, faults
from dflash_tui.demo.base import Moment

SCENES: Final[dict[str, Callable[[Moment], Snapshot]]] = {
    "connecting": calm.connecting,
    "no-run": calm.no_run,
    "initialising": calm.initialising,
    "running": calm.running,
    "quiet": calm.quiet,
    "slow": faults.slow,
    "stalled": faults.stalled,
    "autotune-oom": faults.autotune,
    "crashed": faults.crashed,
    "gpu-lost": faults.gpu_lost,
    "blind": faults.blind,
    "finished": calm.finished,
    "on-cpu": calm.on_cpu,
    "sixteen-gpus": calm.sixteen,
}


def scene(name: str, now: float, begin: float, zone: tzinfo) -> Snapshot:
    """The scene's snapshot at a moment.

    Raises:
        KeyError: no scene has that name.
    """
    return SCENES[name](Moment(now, begin, zone))
