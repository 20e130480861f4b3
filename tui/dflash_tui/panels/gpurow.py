"""One GPU on one row: role, utilisation, memory, power, temperature, power history."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dflash_watch.model import GpuRow
from dflash_watch.units import gib

from dflash_tui.cells import Ink, Row, Span, clean, fit
from dflash_tui.phrases import known, percent
from dflash_tui.plot import bar, spark

WIDE_FROM = 96
"""Inner width from which rows carry limits and a head line."""


def bar_cells(cells: int) -> int:
    """Width of each of the two bars."""
    if cells < WIDE_FROM:
        return 14 if cells >= 78 else 8
    return 24 if cells >= 116 else 16


def head_row(cells: int, history: str) -> Row:
    """Column names of the wide form."""
    size = bar_cells(cells)
    text = f" GPU  role      {'util':<{size + 6}} {'memory':<{size + 17}}power   temp"
    return (Span(fit(text, _history_at(cells)) + f" power {history}", Ink.DIM),)


def _history_at(cells: int) -> int:
    """Column in which the power history begins, less one."""
    return (53 if cells >= WIDE_FROM else 33) + 2 * bar_cells(cells)


def role_ink(role: str | None) -> Ink:
    """Colour of a role."""
    return {"target": Ink.TARGET, "drafter": Ink.DRAFTER}.get(role or "", Ink.TEXT)


def gpu_row(gpu: GpuRow, cells: int, share: float = 1.0, count: int = 0) -> Row:
    """The row, at most `cells` wide.

    Args:
        gpu: what is known; absent values are dashes.
        cells: room.
        share: newest part of the power history to draw.
        count: above 0 the row stands for that many GPUs and holds means.
    """
    wide, ink = cells >= WIDE_FROM, role_ink(gpu.role)
    if gpu.state in {"lost", "failed"}:
        return _gone(gpu, wide=wide, ink=ink)
    stale = gpu.state != "ok"
    size, marked = bar_cells(cells), frozenset(gpu.marks)
    value = Ink.DIM if stale else Ink.TEXT
    used, empty = bar(gpu.utilization_ratio, size)
    held, room = bar(_memory_ratio(gpu), size)

    def figure(text: str, width: int, *fields: str) -> Span:
        odd = not stale and bool(marked & set(fields))
        marked_text = _direction(gpu, fields) + text if odd else text
        return Span(" " + fit(marked_text, width - 1, right=True), Ink.WARN if odd else value)

    spans = (
        _lead(gpu, count, wide=wide, ink=ink),
        Span(used, Ink.DIM if stale else ink),
        Span(empty, Ink.RULE),
        figure(percent(gpu.utilization_ratio), 6, "utilization_ratio", "sm_ratio"),
        Span(" "),
        Span(held, Ink.DIM if stale else ink),
        Span(room, Ink.RULE),
        figure(_memory(gpu, wide=wide), 12 if wide else 9, "memory_used_bytes"),
        figure(_power(gpu, wide=wide), 11 if wide else 7, "power_watts"),
        figure(_temperature(gpu, wide=wide), 7 if wide else 5, "temperature_celsius"),
        Span(" "),
    )
    if stale and gpu.note:
        return (*spans, Span(clean(gpu.note), Ink.WARN))
    past = _history(gpu, cells - _history_at(cells) - 1, share)
    return (*spans, Span(past, Ink.DIM if stale else Ink.HISTORY))


def _lead(gpu: GpuRow, count: int, *, wide: bool, ink: Ink) -> Span:
    """Index, role letter and, where there is room, the role's word."""
    letter = (clean(gpu.role or "")[:1] or " ").upper()
    index = f"x{count}" if count else str(gpu.index)
    if wide:
        return Span(fit(f"{index:>3}   {letter} {clean(gpu.role or '')}", 16), ink)
    return Span(fit(f"{index:>3}{letter} ", 5), ink)


def _gone(gpu: GpuRow, *, wide: bool, ink: Ink) -> Row:
    """The row stays; what the driver says stands in place of the values."""
    note = f"{gpu.state}   {clean(gpu.note or 'the driver gives no values')}"
    return (_lead(gpu, 0, wide=wide, ink=ink), Span(note, Ink.CRITICAL))


def _memory_ratio(gpu: GpuRow) -> float | None:
    used, total = known(gpu.memory_used_bytes), known(gpu.memory_total_bytes)
    return None if used is None or not total else used / total


def _memory(gpu: GpuRow, *, wide: bool) -> str:
    used, total = known(gpu.memory_used_bytes), known(gpu.memory_total_bytes)
    if used is None:
        return "–"
    of = "–" if total is None else f"{total / 2**30:.0f}"
    return f"{gib(used)}/{of} G" if wide else f"{used / 2**30:.0f}/{of}G"


def _power(gpu: GpuRow, *, wide: bool) -> str:
    watts, limit = known(gpu.power_watts), known(gpu.power_limit_watts)
    if watts is None:
        return "–"
    return (
        f"{watts:.0f}/{limit:.0f} W" if wide and limit is not None else f"{watts:.0f}{' ' * wide}W"
    )


def _temperature(gpu: GpuRow, *, wide: bool) -> str:
    value = known(gpu.temperature_celsius)
    return "–" if value is None else f"{value:.0f}{' °' if wide else ''}C"


def _direction(gpu: GpuRow, fields: Sequence[str]) -> str:
    """Which way an odd value left its band, where the history tells; else only that it did."""
    past = [watts for watts in map(known, gpu.power_history) if watts is not None]
    now = known(gpu.power_watts)
    if "power_watts" not in fields or not past or now is None:
        return "!"
    return "▼" if now < sum(past) / len(past) else "▲"


def _history(gpu: GpuRow, cells: int, share: float) -> str:
    past = gpu.power_history
    part = past[len(past) - max(round(len(past) * share), 1) :] if past else ()
    return spark(part, cells, gpu.power_limit_watts)


def mean_of(group: Sequence[GpuRow]) -> GpuRow:
    """One row that stands for a group: means of what is known."""

    def mean(value: Callable[[GpuRow], float | None]) -> float | None:
        values = [one for one in (known(value(gpu)) for gpu in group) if one is not None]
        return sum(values) / len(values) if values else None

    def whole(value: Callable[[GpuRow], float | None]) -> int | None:
        number = mean(value)
        return None if number is None else round(number)

    length = max((len(gpu.power_history) for gpu in group), default=0)
    columns = [
        [gpu.power_history[-back] for gpu in group if len(gpu.power_history) >= back]
        for back in range(length, 0, -1)
    ]
    history = [[watts for watts in map(known, column) if watts is not None] for column in columns]
    return GpuRow(
        index=group[0].index,
        role=group[0].role,
        utilization_ratio=mean(lambda gpu: gpu.utilization_ratio),
        memory_used_bytes=whole(lambda gpu: gpu.memory_used_bytes),
        memory_total_bytes=whole(lambda gpu: gpu.memory_total_bytes),
        power_watts=mean(lambda gpu: gpu.power_watts),
        power_limit_watts=mean(lambda gpu: gpu.power_limit_watts),
        temperature_celsius=mean(lambda gpu: gpu.temperature_celsius),
        power_history=tuple(sum(part) / len(part) if part else None for part in history),
    )
