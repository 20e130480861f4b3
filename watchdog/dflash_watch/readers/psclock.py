"""Ages and processor times as ps prints them, and when they must not be believed."""

from __future__ import annotations

import re

import msgspec

DAY_S = 86400.0
WRAPPED_S = 2**64 / 100 % (2**32 * DAY_S)
"""What an age slightly below zero becomes: 2^64 ticks of 1/100 s, the days cut to 32 bits."""
BUSY_S = 600.0
"""Processor time from which `0.0 %` of a young process contradicts itself."""
ABSURD_S = 100 * 365 * DAY_S
"""No process is older."""

_AGE = re.compile(r"(?:(\d{1,12})-)?(?:(\d{1,6}):)?(\d{1,6}):(\d\d)(?:\.(\d{1,3}))?$")


class ClockArtefact(msgspec.Struct, frozen=True, kw_only=True):
    """Ages and %CPU of this table are not what they say."""

    text: str
    """Explanation for a person."""
    host_longer_s: float | None = None
    """How much longer the host had been up when the container started than the process is old."""


def parse_age(text: str) -> float | None:
    """Seconds of `441077229-16:25:36`, `01:02:03`, `02:03`, `2:03.45` or a bare number."""
    found = _AGE.match(text)
    if found is None:
        return float(text) if text.isdecimal() and len(text) < 16 else None
    days, hours, minutes, seconds, part = found.groups()
    whole = int(days or 0) * DAY_S + int(hours or 0) * 3600.0 + int(minutes) * 60.0 + int(seconds)
    return whole + float(f"0.{part or 0}")


def is_age(word: str) -> bool:
    """An age or time with a colon in it."""
    return ":" in word and _AGE.match(word) is not None


def artefact_of(
    elapsed_s: float | None, cpu_s: float | None, cpu_percent: float | None, started: str
) -> ClockArtefact | None:
    """Why the clocks of this row cannot be believed, None where nothing speaks against them."""
    if elapsed_s is not None and elapsed_s >= ABSURD_S:
        return _wrapped(elapsed_s)
    if cpu_s is None or cpu_s < BUSY_S:
        return None
    if elapsed_s == 0 or (cpu_percent == 0 and re.fullmatch(r"\d\d:\d\d(?::\d\d)?", started)):
        return ClockArtefact(
            text=f"ps shows no age or no %CPU for a process that has used {cpu_s:.0f} s of"
            " processor time: in a container its clock is not the host's. Neither proves anything"
        )
    return None


def _wrapped(elapsed_s: float) -> ClockArtefact:
    longer_s = WRAPPED_S - elapsed_s
    near = 0 <= longer_s < ABSURD_S
    told = f"; the host was up {longer_s / DAY_S:.2f} days longer when the container started than "
    return ClockArtefact(
        text=f"ps says {elapsed_s / DAY_S:.0f} days: an age below zero that wrapped around, because"
        " lxcfs shows the container its own uptime while the process's start counts from the"
        " host's (procps 4.0.1 to 4.0.4). %CPU 0.0 is the same artefact. Neither proves anything"
        + (told + "the process is old" if near else ""),
        host_longer_s=longer_s if near else None,
    )
