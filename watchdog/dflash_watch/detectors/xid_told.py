"""The driver told an Xid on a card of the run, and no playbook has a signature for it.

Sees:       numbers in kernel lines and events of the driver that no failure is named by.
Means:      what the driver's list says of the number; it happened, not that it still matters.
Wrong when: a process was killed on purpose (45), or another container shares the card.
Source:     NVIDIA's list of Xid errors; docs/frames.md, `kernel` and `xids`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dflash_watch.detectors.base import Answer, Detector, Example, View, symptom
from dflash_watch.detectors.examples import example, frames, process
from dflash_watch.frame import GpuProcess, GpuSample
from dflash_watch.model import Severity, Source
from dflash_watch.readers.xids import is_hardware, words
from dflash_watch.window.kernellog import XidSeen


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Limits."""

    lasts_s: float = 600.0
    """It is shown for so long."""


def detect(view: View, params: Params) -> Iterator[Answer]:
    """One symptom a card and number, since the first."""
    seen: dict[tuple[int | None, int], list[XidSeen]] = {}
    for one in view.window.kernel_log.unnamed:
        if view.now_t - one.t <= params.lasts_s:
            seen.setdefault((one.card, one.xid.number), []).append(one)
    for (card, number), found in seen.items():
        newest = found[-1].xid
        whose = f" (process {newest.pid} {newest.name or ''}".rstrip() + ")" if newest.pid else ""
        times = f", {len(found)} times" if len(found) > 1 else ""
        text = f"Xid {number}{times}{whose}: {words(number)}"
        subject = "host" if card is None else f"gpu{card}"
        severity = Severity.WARNING if is_hardware(number) else Severity.INFO
        yield symptom(subject, severity, found[0].t, text, Source.HOST, starts=False)


def _run(card: int) -> Example:
    """Two cards, the run is on the first; an event on one of them."""

    def cards(i: int) -> tuple[GpuSample, ...]:
        own = GpuProcess(pid=10, memory_bytes=2**30)
        xids = (45,) if i == 3 else ()
        return tuple(
            GpuSample(
                index=n, memory_used_bytes=1, processes=(own,) if n == 0 else (),
                xids=xids if n == card else (),
            )
            for n in range(2)
        )  # fmt: skip

    told = frames(5, gpus=cards, processes=lambda i: (process(i),))
    return example(told, subject="gpu0" if card == 0 else None)


def firing() -> Example:
    """On the run's own card."""
    return _run(0)


def clear() -> Example:
    """On somebody else's."""
    return _run(1)


DETECTOR = Detector(detect=detect, params=Params(), firing=firing, clear=clear)
