"""A call into the GPU driver does not come back.

Sees:       a process of the run in state D inside a function of the driver, without CPU ticks.
Means:      the driver waits for a card that does not answer, or for a lock of its own.
Wrong when: memory of tens of gigabytes is pinned or mapped in one call.
Source:     proc(5), /proc/PID/stat and wchan.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from dflash_watch.detectors.base import Answer, Detector, Example, View, symptom
from dflash_watch.detectors.examples import example, frames, process
from dflash_watch.model import Evidence, EvidenceKind, Severity, Source
from dflash_watch.units import duration
from dflash_watch.window.tracks import DISK

KERNEL_WORDS = re.compile(r"NVRM|\bXid\b|blocked for more than")
"""What the kernel says when its driver stands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Limits."""

    least_s: float = 10.0
    """Shorter waits are ordinary."""
    looks: int = 5
    """Looks in a row."""
    where: str = r"^_?(?:nv|uvm|rm_|os_acquire|_nv|nvidia|drm_)"
    """Kernel functions of the driver."""


def detect(view: View, params: Params) -> Iterator[Answer]:
    """Every process of the run: of several ranks one is enough."""
    for one in view.window.tracks.in_state(DISK):
        stands_s = one.track.last_t - one.track.state_since_t
        moved = (one.track.moved_t or 0.0) > one.track.state_since_t
        if one.track.state_looks < params.looks or stands_s < params.least_s or moved:
            continue
        where = one.sample.wchan or ""
        if not re.match(params.where, where):
            continue
        is_main = one.sample.pid == view.window.main_pid()
        name = f"rank-{one.sample.rank}" if one.sample.rank is not None else None
        subject = name or ("run" if is_main else f"process {one.sample.pid}")
        text = f"process {one.sample.pid} in state D for {duration(stands_s)}, in {where}"
        text += " of the GPU driver"
        since_t = one.track.state_since_t
        yield symptom(subject, Severity.CRITICAL, since_t, text, Source.PROCESS, *_kernel(view))


def _kernel(view: View) -> list[Evidence]:
    """What the kernel says of the driver, on the host of a container too."""
    return [
        Evidence(kind=EvidenceKind.FOR, text=f"kernel: {line[:160]}", source=Source.HOST)
        for line in view.window.kernel_words(KERNEL_WORDS)
    ]


def firing() -> Example:
    """Twelve seconds inside the driver."""
    held = {"state": "D", "cpu_ticks": 5, "wchan": "uvm_va_space_down_write"}
    return example(frames(13, processes=lambda i: (process(i, **held),)), subject="run")


def clear() -> Example:
    """The same on a network mount: not the driver's."""
    held = {"state": "D", "cpu_ticks": 5, "wchan": "rpc_wait_bit_killable"}
    return example(frames(13, processes=lambda i: (process(i, **held),)))


DETECTOR = Detector(detect=detect, params=Params(), firing=firing, clear=clear)
