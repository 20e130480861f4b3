"""Limits of the container hold the run back: its CPU limit, or too little memory.

Sees:       for how long the CPU limit held its processes back; the share of time in which they
            waited for memory (pressure).
Means:      the machine could do more than the container may.
Wrong when: the run does its work on GPUs and what is held back are helpers nobody waits for.
Source:     docs/frames.md, HostSample and ContainerSample; cgroup v2 cpu.stat and memory.pressure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dflash_watch.detectors.base import Answer, Detector, Example, View, symptom
from dflash_watch.detectors.examples import example, frames
from dflash_watch.frame import HostSample
from dflash_watch.model import Severity, Source
from dflash_watch.units import percent


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Limits."""

    over_s: float = 30.0
    least_throttled: float = 0.25
    """Seconds in each second, all processors together."""
    least_stall: float = 0.2
    """Share of the time."""


def detect(view: View, params: Params) -> Iterator[Answer]:
    """By the newest half minute."""
    window = view.window
    if window.frame is None:
        return
    now_s, since_t = window.frame.boot_s, window.data_t - params.over_s
    throttled = window.held.throttled(now_s, params.over_s)
    if throttled is not None and throttled >= params.least_throttled:
        text = f"the CPU limit holds the container back for {throttled:.1f} s in each second"
        yield symptom("host", Severity.INFO, since_t, text, Source.HOST)
    stall = window.held.memory_stall(now_s, params.over_s)
    if stall is not None and stall >= params.least_stall:
        text = f"processes of the container wait for memory for {percent(stall)} of the time"
        yield symptom("host", Severity.INFO, since_t, text, Source.HOST)


def _run(rate: float, subject: str | None) -> Example:
    told = frames(40, host=lambda i: HostSample(throttled_s=100.0 + rate * i))
    return example(told, subject=subject)


def firing() -> Example:
    """More than half of each second."""
    return _run(0.6, "host")


def clear() -> Example:
    """Now and then."""
    return _run(0.05, None)


DETECTOR = Detector(detect=detect, params=Params(), firing=firing, clear=clear)
