"""The machine's uptime is rewritten here: what `ps` computes from it is wrong.

Sees:       `/proc/uptime` far from CLOCK_BOOTTIME, as lxcfs makes it in LXC containers.
Means:      ELAPSED and %CPU of `ps` and `top` are artefacts for every process; nothing is wrong.
Wrong when: never: it judges the figures, not the run.
Source:     proc(5), /proc/uptime; docs/verdicts.md, "ages".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dflash_watch.detectors.base import Answer, Detector, Example, View, symptom
from dflash_watch.detectors.examples import example, frames
from dflash_watch.frame import HostSample
from dflash_watch.model import Severity, Source
from dflash_watch.units import duration


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Limits."""

    apart_s: float = 60.0
    """Both are read milliseconds apart."""


def detect(view: View, params: Params) -> Iterator[Answer]:
    """Both clocks of the newest frame; it names no run by itself."""
    frame = view.window.frame
    if frame is None or frame.host is None or frame.host.uptime_s is None:
        return
    apart_s = abs(frame.boot_s - frame.host.uptime_s)
    if apart_s < params.apart_s:
        return
    text = f"/proc/uptime is {duration(apart_s)} off here: ELAPSED and %CPU of ps mean nothing"
    since_t = view.window.first_t or view.now_t
    yield symptom("host", Severity.INFO, since_t, text, Source.HOST, starts=False)


def firing() -> Example:
    """A container that started after its machine."""
    return example(frames(2, host=HostSample(uptime_s=100.0)), subject="host")


def clear() -> Example:
    """The same clock."""
    return example(frames(2, host=lambda i: HostSample(uptime_s=1000.0 + i)))


DETECTOR = Detector(detect=detect, params=Params(), firing=firing, clear=clear)
