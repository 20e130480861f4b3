"""How often something may be done: so many at once, then one more now and then. Time is given."""

from __future__ import annotations


class Bucket:
    """Holds `size` permits when full; one comes back every `every_s` seconds."""

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
