"""Bars, spark lines and the braille plot, as strings of exactly the width asked for.

Bars are thin and spark lines never use the full block, so that rows below each other stay apart.
A gap in the data is a gap in the drawing. Blanks inside a plot are U+2800: a text run that mixes
blanks and braille is stretched by some renderers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

SPARKS: Final = "▁▂▃▄▅▆▇"
EMPTY: Final = "⠀"
DASH: Final = "╌"
_DOTS: Final = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))


class Sample(NamedTuple):
    """One bucket of the plot; None is a gap."""

    t: float
    low: float | None
    high: float | None
    mean: float | None = None
    joined: bool = False
    """It is known what was between the sample before and this one, however far apart they are."""


def finite(value: float | None) -> float | None:
    """The value within +-1e15, or None for what cannot be drawn (absent, NaN, infinite)."""
    if value is None or not math.isfinite(value):
        return None
    return float(min(max(value, -1e15), 1e15))


def bar(ratio: float | None, cells: int) -> tuple[str, str]:
    """Filled and empty part of a bar; a ratio that is not known fills nothing."""
    known = finite(ratio)
    full = 0 if known is None else round(min(max(known, 0.0), 1.0) * cells)
    return "━" * full, "─" * (max(cells, 0) - full)


def spark(values: Sequence[float | None], cells: int, top: float | None = None) -> str:
    """The newest values from 0 to `top` (default: their maximum), one a cell, newest at the right.

    More values than cells: the mean of each bucket, and its minimum when it holds a fall to below
    half of that mean, so that a dip survives. Fewer: blanks at the left.
    """
    known = [finite(value) for value in values]
    buckets = _buckets(known, cells)
    limit = finite(top) or max((value for value in buckets if value is not None), default=0.0)
    marks = [" " if value is None else SPARKS[_level(value, limit)] for value in buckets]
    return "".join(marks).rjust(max(cells, 0))


def _level(value: float, limit: float) -> int:
    if limit <= 0:
        return 0
    share = min(max(value, 0.0), limit) / limit
    return int(share * (len(SPARKS) - 1) + 0.5)


def _buckets(values: Sequence[float | None], cells: int) -> list[float | None]:
    if cells <= 0:
        return []
    if len(values) <= cells:
        return list(values)
    drawn: list[float | None] = []
    for index in range(cells):
        first, last = index * len(values) // cells, (index + 1) * len(values) // cells
        part = [value for value in values[first:last] if value is not None]
        if not part:
            drawn.append(None)
            continue
        mean = sum(part) / len(part)
        drawn.append(min(part) if min(part) < mean / 2 else mean)
    return drawn


def nice_top(value: float) -> float:
    """The next round number at or above `value`, of a few digits that make good labels."""
    if not math.isfinite(value) or value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    for step in (1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 4, 5, 6, 8):
        if value <= step * power * (1 + 1e-9):
            return float(step * power)
    return 10 * power


class Axes(NamedTuple):
    """What a plot shows: moments left to right, values bottom to top."""

    begin_t: float
    end_t: float
    bottom: float
    top: float

    def column(self, t: float, columns: int) -> int:
        """Dot column of a moment; may lie outside."""
        span = max(self.end_t - self.begin_t, 1e-6)
        return math.floor(min(max((t - self.begin_t) / span, -2.0), 2.0) * columns)

    def level(self, value: float, levels: int) -> int:
        """Dot row of a value, 0 at the bottom, clamped into the plot."""
        span = max(self.top - self.bottom, 1e-12)
        share = min(max((value - self.bottom) / span, 0.0), 1.0)
        return min(int(share * (levels - 1) + 0.5), levels - 1)


def braille(
    samples: Sequence[Sample], axes: Axes, cells: int, height: int, baseline: float | None = None
) -> list[str]:
    """The plot as `height` strings of `cells` braille characters, dashes for the baseline.

    Each dot column shows the lowest to the highest value that falls into it, joined to the one
    before; columns without a sample are bridged only when the samples are simply that far apart.
    """
    columns, levels = cells * 2, height * 4
    if columns <= 0 or levels <= 0:
        return []
    spans = _column_spans(samples, axes, columns)
    grid = [[0] * cells for _ in range(height)]
    before: tuple[float, float] | None = None
    for column, span in enumerate(spans):
        if span is None:
            before = None
            continue
        low, high = span
        if before is not None:  # joined: reach from this column to the one before
            low, high = min(low, before[1]), max(high, before[0])
        for level in range(axes.level(low, levels), axes.level(high, levels) + 1):
            upper = levels - 1 - level
            grid[upper // 4][column // 2] |= _DOTS[column % 2][upper % 4]
        before = span
    rows = [[chr(0x2800 + dots) for dots in line] for line in grid]
    known = finite(baseline)
    if known is not None and axes.bottom <= known <= axes.top:
        line = rows[(levels - 1 - axes.level(known, levels)) // 4]
        line[:] = [DASH if mark == EMPTY else mark for mark in line]
    return ["".join(line) for line in rows]


def _column_spans(
    samples: Sequence[Sample], axes: Axes, columns: int
) -> list[tuple[float, float] | None]:
    """Lowest and highest value of each dot column."""
    spans: list[tuple[float, float] | None] = [None] * columns
    for column, low, _mean, high in _bridged(samples, axes, columns):
        old = spans[column]
        spans[column] = (low, high) if old is None else (min(old[0], low), max(old[1], high))
    return spans


def means(samples: Sequence[Sample], axes: Axes, cells: int) -> list[float | None]:
    """Mean of what falls into each cell, bridged as the plot is; None is a gap."""
    found: list[list[float]] = [[] for _ in range(max(cells, 0))]
    for column, _low, mean, _high in _bridged(samples, axes, cells):
        found[column].append(mean)
    return [sum(part) / len(part) if part else None for part in found]


def _bridged(
    samples: Sequence[Sample], axes: Axes, columns: int
) -> Iterator[tuple[int, float, float, float]]:
    """(column, low, mean, high) of each sample inside, and of the columns between two joined."""
    reach = _reach_s(samples)
    last: tuple[float, float, float, float] | None = None
    for sample in samples:
        low, high = finite(sample.low), finite(sample.high)
        if low is None or high is None or not math.isfinite(sample.t):
            last = None
            continue
        here = axes.column(sample.t, columns)
        if here == columns and sample.t <= axes.end_t:
            here = columns - 1
        said = finite(sample.mean)
        values = (low, (low + high) / 2 if said is None else said, high)
        if last is not None and (0 < sample.t - last[0] <= reach or sample.joined):
            first = axes.column(last[0], columns)
            for column in range(max(first + 1, 0), min(here, columns)):
                share = (column - first) / (here - first)
                a, b, c = (
                    old + share * (new - old) for old, new in zip(last[1:], values, strict=True)
                )
                yield column, a, b, c
        if 0 <= here < columns:
            yield here, *values
        last = (sample.t, *values)


def _reach_s(samples: Sequence[Sample]) -> float:
    """Samples further apart than this have a gap between them: 2.5 times their usual distance."""
    steps = sorted(
        later.t - earlier.t
        for earlier, later in pairwise(samples)
        if math.isfinite(later.t - earlier.t) and later.t > earlier.t
    )
    return 2.5 * steps[len(steps) // 2] if steps else 0.0
