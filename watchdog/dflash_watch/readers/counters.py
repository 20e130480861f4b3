"""Did a counter move? Known counters by series, unknown formats learned from lines that repeat.

Memory is bounded: the least recently seen series and shapes are forgotten.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from functools import lru_cache
from typing import Generic, TypeVar

import msgspec

V = TypeVar("V")

SHAPES = 128
"""Line shapes and series remembered."""
RISES = 3
"""A number has to rise this often, each time its line comes, before it counts as a counter."""

OUT_OF_ORDER = 4.0
"""Steps by which a line may come late."""

_STAMP = re.compile(
    r"\d{2,4}[-/]\d{1,2}[-/]\d{1,4}|\d{1,2}:\d{2}:\d{2}(?:[.,]\d{1,9})?|\b1[5-9]\d{8}(?:\.\d+)?\b"
    r"|\b(?:pid|tid|port|thread|process)[ =:]{0,2}\d{1,10}"
)
_NUMBER = re.compile(r"(?<![\w.])\d{1,12}(?![\w.%])")
_ANY_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_MEASURE = re.compile(
    r"\s?(?:s|ms|us|sec|secs|second|seconds|min|minutes?|h|hours?|[kKMGT]i?B|bytes|W|C)\b"
)
_WAITING = (
    "wait", "retry", "retri", "attempt", "heartbeat", "alive", "timeout", "timed out", "elapsed",
    "uptime", "memory", "stuck", "pending",
)  # fmt: skip
_NOTHING_FOUND = re.compile(r"no .{0,40} found")


class Moved(msgspec.Struct, frozen=True):
    """A counter that moved."""

    value: float
    restarted: bool


class Recent(Generic[V]):
    """A dictionary that forgets what was not looked at for longest."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._items: OrderedDict[str, V] = OrderedDict()

    def get(self, key: str) -> V | None:
        """The value, now the most recent, or None."""
        value = self._items.get(key)
        if value is not None:
            self._items.move_to_end(key)
        return value

    def put(self, key: str, value: V) -> None:
        """Store it as the most recent."""
        self._items[key] = value
        self._items.move_to_end(key)
        if len(self._items) > self._size:
            self._items.popitem(last=False)


class Counters:
    """Last value of each series."""

    def __init__(self) -> None:
        self._last: Recent[float] = Recent(SHAPES)

    def move(self, series: str, value: float) -> Moved | None:
        """Whether the series went on; None when it stands still.

        A value a little below the highest is none: workers that print into one log are not always
        in order. A long way down is a new start.
        """
        last = self._last.get(series)
        if last is not None and (value == last or _is_late(last, value)):
            return None
        self._last.put(series, value)
        return Moved(value, restarted=last is not None and value < last)


def _is_late(last: float, value: float) -> bool:
    return last / 2 < value < last and last - value <= max(OUT_OF_ORDER, 0.1 * last)


class _Shape:
    __slots__ = ("last", "rises")

    def __init__(self, numbers: list[int]) -> None:
        self.last = numbers
        self.rises = [0] * len(numbers)


class Learner:
    """Finds the number that goes up in lines of an unknown format."""

    def __init__(self) -> None:
        self._shapes: Recent[_Shape] = Recent(SHAPES)

    def look(self, line: str) -> tuple[str, int] | None:
        """Series and value when the line's counter rose, as it did at least RISES times running."""
        if _only_waits(line.lower()):
            return None
        bare = without_stamps(line)
        numbers = [int(found.group()) for found in _countable(bare)]
        if not numbers or len(numbers) > 20:
            return None
        key = shape_of(bare)
        shape = self._shapes.get(key)
        if shape is None or len(shape.last) != len(numbers):
            self._shapes.put(key, _Shape(numbers))
            return None
        for i, (old, new) in enumerate(zip(shape.last, numbers, strict=True)):
            shape.rises[i] = shape.rises[i] + 1 if new > old else 0
        shape.last = numbers
        best = max(range(len(numbers)), key=lambda i: shape.rises[i])
        return (f"learned:{key}", numbers[best]) if shape.rises[best] >= RISES else None


class Repeats:
    """Counts lines that say the same again, their time stamps left out."""

    def __init__(self) -> None:
        self._seen: Recent[tuple[int, float]] = Recent(SHAPES)

    def count(self, line: str, t: float) -> tuple[int, float]:
        """How often this line was seen, and when first, in seconds."""
        key = without_stamps(line)[:300]
        count, first_t = self._seen.get(key) or (0, t)
        self._seen.put(key, (count + 1, first_t))
        return count + 1, first_t


def is_milestone(count: int) -> bool:
    """True at 3, 10, 30, 100, 300, ..."""
    if count < 3:
        return False
    while count >= 10 and count % 10 == 0:
        count //= 10
    return count in (1, 3)


@lru_cache(maxsize=8)
def without_stamps(line: str) -> str:
    """The line without dates, times of day, epoch seconds and process numbers."""
    return _STAMP.sub("", line)


def shape_of(line: str) -> str:
    """The line with `#` for each number, at most 120 characters."""
    return _ANY_NUMBER.sub("#", line[:200])[:120]


def _only_waits(low: str) -> bool:
    found = "found" in low and _NOTHING_FOUND.search(low)
    return bool(found) or any(word in low for word in _WAITING)


def _countable(line: str) -> list[re.Match[str]]:
    """Whole numbers that do not measure time or size."""
    return [found for found in _NUMBER.finditer(line) if not _MEASURE.match(line, found.end())]
