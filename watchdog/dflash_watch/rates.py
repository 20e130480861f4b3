"""How often something may be done. Time is given."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

HOUR_S = 3600.0


class Hourly:
    """At most `most` in any hour.

    Args:
        most: in an hour.
        before: moments of those that were earlier, by the same clock, oldest first.
    """

    def __init__(self, most: int, before: Iterable[float] = ()) -> None:
        self._most = most
        self._done: deque[float] = deque(before, maxlen=most)

    def take(self, now_s: float) -> bool:
        """Whether one more may be done; it counts then."""
        if sum(abs(now_s - one) < HOUR_S for one in self._done) >= self._most:
            return False
        self._done.append(now_s)
        return True


class Bucket:
    """So many at once, then one more now and then.

    Holds `size` permits when full; one comes back every `every_s` seconds.
    """

    def __init__(self, size: int, every_s: float) -> None:
        self._size, self._every_s = size, every_s
        self._left: float = size
        self._seen_s: float | None = None

    def take(self, now_s: float, reserve: int = 0) -> bool:
        """Use one permit up, if more than `reserve` are there; whether one was."""
        if self._seen_s is not None:
            self._left += max(now_s - self._seen_s, 0.0) / self._every_s
            self._left = min(self._left, self._size)
        self._seen_s = now_s
        if self._left < reserve + 1:
            return False
        self._left -= 1
        return True
