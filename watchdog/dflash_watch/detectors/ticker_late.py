"""Threads of the run get their turn late: they contend for the interpreter lock.

Sees:       how late the ticker was woken, look by look, in the beat page; processor time.
Means:      threads queue up for the one lock: each launch, each queue operation waits its turn.
Wrong when: the machine itself is overloaded: then everything is late, and this says nothing.
Source:     docs/run-directory.md, "beats".
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dflash_watch.detectors.base import Answer, Detector, Example, View, missing, symptom
from dflash_watch.detectors.examples import example, frames, worker
from dflash_watch.frame import BeatPage, HostSample, Ticker
from dflash_watch.model import Severity, Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Limits."""

    late_s: float = 0.02
    """Half of the looks at least so late: the interpreter hands over every 0.005 s, so four stood
    in line."""
    busy_late_s: float = 0.04
    """The same on a machine without room, less what its thread waited for a processor: 0.008 was
    usual in a healthy run on two processors that eight programs shared."""
    looks: int = 20
    over_s: float = 30.0
    busy: float = 0.9
    """Of the machine's processors in use: without room."""


def detect(view: View, params: Params) -> Iterator[Answer]:
    """Lateness over the newest half minute."""
    since_t = view.now_t - params.over_s
    ticks = [ticker for t, ticker in view.window.told.ticks if t > since_t]
    if len(ticks) < params.looks:
        return
    late_s = statistics.median(one.late_s for one in ticks)
    if late_s < params.late_s:
        return
    busy = view.window.host.cpu_busy_ratio if view.window.host is not None else None
    waited_s = _waited_s(ticks)
    if busy is None or busy > params.busy:
        if waited_s is None:
            yield missing("run", "whether threads are late by the lock or by a busy machine")
            return
        if late_s - waited_s < params.busy_late_s:
            return
    text = f"threads get their turn {1000 * late_s:.0f} ms late (half of {len(ticks)} looks)"
    if waited_s is not None:
        text += f", {1000 * waited_s:.0f} ms of it for want of a processor"
    text += ": they queue up for the interpreter lock"
    yield symptom("run", Severity.WARNING, since_t, text, Source.BEATS)


def _waited_s(ticks: Sequence[Ticker]) -> float | None:
    """What the ticker's thread waited for a processor, mean of a beat."""
    first, last = ticks[0], ticks[-1]
    if first.run_delay_s is None or last.run_delay_s is None or last.beats <= first.beats:
        return None
    return max(last.run_delay_s - first.run_delay_s, 0.0) / (last.beats - first.beats)


def _run(late_s: float, busy: float) -> Example:
    """Half a minute of looks."""

    def page(i: int) -> BeatPage:
        ticker = Ticker(beats=10 * i, age_s=0.05, late_s=late_s, max_late_s=late_s)
        return BeatPage(workers=(worker("drafter-0", step=i + 1),), ticker=ticker)

    host = HostSample(cpus=32, cpu_busy_ratio=busy)
    return example(frames(32, beats=page, host=host), subject="run" if busy < 0.9 else None)


def firing() -> Example:
    """Sixty milliseconds on a machine with room."""
    return _run(0.06, 0.2)


def clear() -> Example:
    """The same on a machine without."""
    return _run(0.06, 0.99)


DETECTOR = Detector(detect=detect, params=Params(), firing=firing, clear=clear)
