"""A GPU that works is held below its clocks: too hot, or short of power.

Sees:       the driver's reasons for lower clocks, look by look, while the card is in use; the
            clock against its siblings that work as well.
Means:      cooling, the power supply or a limit of the machine takes speed away.
Wrong when: the card idles, or runs into its own power limit under full load: both are ordinary.
Source:     docs/frames.md, GpuSample, `clock_reasons`.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dflash_watch.detectors.base import Answer, Detector, Example, View, symptom
from dflash_watch.detectors.examples import example, frames
from dflash_watch.frame import GpuSample
from dflash_watch.model import Severity, Source
from dflash_watch.readers.clockreasons import ANY_HELD_DOWN, HELD_DOWN, in_words
from dflash_watch.roles import cards_of_run
from dflash_watch.units import percent
from dflash_watch.window.gpuload import Look


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Limits."""

    looks: int = 20
    over_s: float = 30.0
    """Shorter dips do no harm."""
    share: float = 0.8
    """Of the looks at which it works must show the reason."""
    in_use: float = 0.3
    """Utilisation below which a look does not count: clocks drop at idle."""
    of_siblings: float = 0.6
    """Of the median clock of the others that work, where no reason is told."""


def detect(view: View, params: Params) -> Iterator[Answer]:
    """Each card by its reasons, then against the others."""
    since_t = view.now_t - params.over_s
    at_work: dict[int, list[Look]] = {}
    for index, track in cards_of_run(view.window, view.options).items():
        looks = [one for one in track.recent(since_t) if (one.util or 0.0) >= params.in_use]
        if track.sample.state == "ok" and len(looks) >= params.looks:
            at_work[index] = looks
    clocks = {index: clock for index, looks in at_work.items() if (clock := _clock(looks))}
    for index, looks in at_work.items():
        reason = _reason(looks, params.share)
        others = [clock for other, clock in clocks.items() if other != index]
        slow = index in clocks and len(others) >= 2
        slow = slow and clocks[index] < params.of_siblings * statistics.median(others)
        if reason is None and not slow:
            continue
        text = f"gpu{index} works at {clocks.get(index, 0):.0f} MHz"
        if others:
            text += f", {percent(clocks.get(index, 0) / statistics.median(others))} of its siblings"
        text += f": {reason}" if reason is not None else f"; the driver's reason: {_told(looks)}"
        yield symptom(f"gpu{index}", Severity.WARNING, looks[0].t, text, Source.GPU)


def _clock(looks: Sequence[Look]) -> float | None:
    known = [look.clock for look in looks if look.clock is not None]
    return statistics.median(known) if known else None


def _reason(looks: Sequence[Look], share: float) -> str | None:
    known = [look.reasons for look in looks if look.reasons is not None]
    for bit, text in HELD_DOWN.items():
        if known and sum(bool(one & bit) for one in known) >= share * len(known):
            return text
    return None


def _told(looks: Sequence[Look]) -> str:
    """What the newest look says, where none of the grave reasons lasts."""
    known = [look.reasons for look in looks if look.reasons is not None]
    return in_words(known[-1]) if known else "not told"


def _run(reasons: int, used: float) -> Example:
    def cards(_: int) -> tuple[GpuSample, ...]:
        clock = 900 if reasons & ANY_HELD_DOWN else 1500
        return (
            GpuSample(index=0, utilization_ratio=used, sm_clock_mhz=clock, clock_reasons=reasons),
        )

    hot = bool(reasons & ANY_HELD_DOWN) and used > 0.3
    return example(frames(35, gpus=cards), subject="gpu0" if hot else None)


def firing() -> Example:
    """Too hot for half a minute of work."""
    return _run(0x20, 0.98)


def clear() -> Example:
    """At its own power limit under full load."""
    return _run(0x04, 0.98)


DETECTOR = Detector(detect=detect, params=Params(), firing=firing, clear=clear)
