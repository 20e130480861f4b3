"""Time that never jumps: the watched host's wall clock, without the steps somebody made to it.

A clock that is set (NTP after a start, a person, a virtual machine that was resumed) moves every
age by hours: forwards it is a silence that nobody kept, backwards none is seen until it is caught
up. Frames carry CLOCK_BOOTTIME beside the wall clock; what differs between the two is a step.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from dflash_watch.frame import Frame, StackSample

STEP_S = 2.0
"""Less between two looks is slewing, or a look that took long."""
Timed = TypeVar("Timed", Frame, StackSample)


class SteadyClock:
    """Takes the steps of one boot out of what arrives.

    Attributes:
        ahead_s: how far the wall clock has been set ahead since the first look.
    """

    def __init__(self) -> None:
        self.ahead_s = 0.0
        self._last: tuple[float, float] | None = None

    def see(self, frame: Frame) -> None:
        """Compare both clocks with the look before."""
        if self._last is not None:
            step_s = (frame.t - self._last[0]) - (frame.boot_s - self._last[1])
            self.ahead_s += step_s if abs(step_s) > STEP_S else 0.0
        self._last = (frame.t, frame.boot_s)

    def steady(self, record: Timed) -> Timed:
        """The record on the time scale of the first look."""
        if not self.ahead_s:
            return record
        return msgspec.structs.replace(record, t=record.t - self.ahead_s)
