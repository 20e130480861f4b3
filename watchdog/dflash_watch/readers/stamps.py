"""Moments that a log line itself states; only differences within one kind mean anything.

One line in, kind and seconds out. No time zone is known and none is needed.
"""

from __future__ import annotations

import calendar
import re
from typing import NamedTuple

DAY_S = 86400.0
LONGEST_S = 6 * 3600.0
"""A longer pause between two lines lies between two runs, not between two steps."""
_CLOCK = r"(?P<h>[01]\d|2[0-3]):(?P<m>[0-5]\d):(?P<s>[0-5]\d)(?:[.,](?P<part>\d{1,9}))?(?![\d:])"
_DATES = (
    re.compile(rf"(?<!\d)(?P<y>\d{{4}})[-/.](?P<mo>\d\d)[-/.](?P<d>\d\d)[T ]{{1,2}}{_CLOCK}"),
    re.compile(rf"(?<!\d)(?P<mo>\d\d)/(?P<d>\d\d)/(?P<y>\d{{4}})[ -]{{1,3}}{_CLOCK}"),
)
_TIME = re.compile(rf"^\W{{0,3}}(?:[A-Z]{{1,8}}\W{{1,3}})?{_CLOCK}")
# `30/100 [00:42<01:38, 1.40s/it]`: what has passed stands before what is left.
_BAR = re.compile(r"\[(?:(?P<h>\d{1,4}):)?(?P<m>\d\d):(?P<s>\d\d)[<,]")


class Stamp(NamedTuple):
    """A moment of one kind: `date`, `time` of day, or `bar`, time since a bar began."""

    kind: str
    seconds: float


def read_stamp(text: str) -> Stamp | None:
    """What a line says about when it was written, None if it says nothing."""
    head = text[:80]
    for pattern in _DATES:
        if found := pattern.search(head):
            year, month, day = int(found["y"]), int(found["mo"]), int(found["d"])
            if not (1970 <= year < 2200 and 1 <= month <= 12 and 1 <= day <= 31):
                return None
            return Stamp("date", calendar.timegm((year, month, day, 0, 0, 0)) + _of_day(found))
    if found := _TIME.match(head):
        return Stamp("time", _of_day(found))
    if found := _BAR.search(text[:400]):
        hours = int(found["h"] or 0)
        return Stamp("bar", 3600.0 * hours + 60.0 * int(found["m"]) + int(found["s"]))
    return None


def between_s(before: Stamp | None, after: Stamp | None) -> float | None:
    """Seconds from one line to the next; None when these two do not tell."""
    if before is None or after is None or before.kind != after.kind:
        return None
    seconds = after.seconds - before.seconds
    if seconds < 0 and before.kind == "time":  # past midnight
        seconds += DAY_S
    return seconds if 0 <= seconds <= LONGEST_S else None


def _of_day(found: re.Match[str]) -> float:
    whole = 3600.0 * int(found["h"]) + 60.0 * int(found["m"]) + int(found["s"])
    return whole + float(f"0.{found['part'] or 0}")
