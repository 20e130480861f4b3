"""Throughput against its baseline: a braille plot, or one spark line where there is no room."""

from __future__ import annotations

from collections.abc import Sequence

from dflash_watch.model import Severity

from dflash_tui.cells import Ink, Row, Span, fit, fit_row, row_width, width
from dflash_tui.panels.frame import middle, title
from dflash_tui.phrases import count, known, window
from dflash_tui.plot import DASH, Axes, Sample, braille, finite, nice_top, spark
from dflash_tui.state import Choices, Panel
from dflash_tui.theme import State
from dflash_tui.view import View

LABEL_CELLS = 8
PLOT_FROM_ROWS = 5


YOUNG_WINDOWS_S = (60.0, 120.0, 300.0, 600.0, 1200.0, 2400.0, 4800.0)
"""Shorter windows for a run that fills less than a quarter of the chosen one."""


def window_s(view: View, choices: Choices, points: Sequence[Sample]) -> float:
    """Seconds that the plot shows: as chosen, or less while the data is much younger than that."""
    known = [point.t for point in points if finite(point.high) is not None]
    age = max(now_t(view) - min(known), 0.0) if known else 0.0
    chosen = choices.window_s or max(age, 60.0)
    if not known or age * 4 >= chosen:
        return chosen
    return next((least for least in YOUNG_WINDOWS_S if least >= age), chosen)


def throughput_title(view: View, choices: Choices, points: Sequence[Sample]) -> Row:
    """`Throughput tok/s · now 6 120 · baseline 6 000`."""
    focused = choices.focus is Panel.THROUGHPUT
    if view.snapshot is None:
        return title("Throughput", focused=focused)
    board = view.snapshot.board
    rest = f"tok/s · {speed_word(view)} {count(known(board.tokens_per_s))}"
    if known(board.baseline_tokens_per_s) is not None:
        rest += f" · baseline {count(board.baseline_tokens_per_s)} {DASH}"
    rest += f" · {window(window_s(view, choices, points))}" + (
        " · from lowest" if choices.auto_scale else ""
    )
    return title("Throughput", rest, focused=focused)


def speed_word(view: View) -> str:
    """Is the newest figure about now? Where no steps go on it is only the last one."""
    speed = known(view.snapshot.board.tokens_per_s) if view.snapshot else None
    return "now" if not speed or view.state in {State.RUNNING, State.SLOW} else "last"


def with_fall(view: View, points: Sequence[Sample]) -> list[Sample]:
    """In a stall, silence since the last step is no gap but no work: the line falls to 0."""
    age = known(view.snapshot.board.last_step_age_s) if view.snapshot else None
    if view.state is not State.STALLED or age is None or not points:
        return list(points)
    end = now_t(view)
    stopped = end - age - view.elapsed_s
    drawn = [
        Sample(point.t, 0.0, 0.0) if point.high is None and point.t > stopped else point
        for point in points
    ]
    return [*drawn, Sample(end, 0.0, 0.0)] if end > drawn[-1].t else drawn


def now_t(view: View) -> float:
    """The right edge: now on the watched host's clock, so that old data ends left of it."""
    snapshot = view.snapshot
    if snapshot is None:
        return view.wall_s
    if snapshot.data_t is None or view.data_age_s is None:
        return finite(snapshot.t + view.elapsed_s) or view.wall_s
    return finite(snapshot.data_t + view.data_age_s) or view.wall_s


def throughput(
    view: View, choices: Choices, points: Sequence[Sample], cells: int, height: int
) -> list[Row]:
    """The panel's rows, without its frame."""
    points = with_fall(view, points)
    axes = _axes(view, choices, points)
    inside = [point for point in points if axes.begin_t <= point.t <= axes.end_t]
    if height < PLOT_FROM_ROWS or cells < 40:
        return [_spark_row(view, inside, axes, cells)]
    if not any(finite(point.high) is not None for point in points):
        return [(), middle("no throughput seen yet", cells)]
    return _plot_rows(view, points, axes, cells, height)


def _axes(view: View, choices: Choices, points: Sequence[Sample]) -> Axes:
    end = now_t(view)
    begin = end - window_s(view, choices, points)
    inside = [point for point in points if begin <= point.t <= end]
    highs = [value for value in (finite(point.high) for point in inside) if value is not None]
    lows = [value for value in (finite(point.low) for point in inside) if value is not None]
    baseline = finite(view.snapshot.board.baseline_tokens_per_s) if view.snapshot else None
    top = nice_top(max([*highs, baseline or 0.0], default=0.0) * 1.05)
    bottom = 0.0
    both = lows + highs
    if choices.auto_scale and both:
        margin = max(max(both) - min(both), abs(max(both)) * 0.01, 1e-9) * 0.1
        bottom, top = min(both) - margin, max(both) + margin
    return Axes(begin, end, bottom, top)


def _spark_row(view: View, inside: Sequence[Sample], axes: Axes, cells: int) -> Row:
    """` tok/s 30m ▇▇▇▇▆▁ now 6 120 base 6 000`."""
    board = view.snapshot.board if view.snapshot else None
    name = f" tok/s {window(axes.end_t - axes.begin_t, short=True)} "
    tail = f" {speed_word(view)} {count(known(board.tokens_per_s) if board else None)}"
    if board is not None and known(board.baseline_tokens_per_s) is not None:
        tail += f" base {count(board.baseline_tokens_per_s)}"
    room = max(cells - len(name) - width(tail) - 1, 0)
    line = spark(_resampled(inside, axes, room), room, axes.top)
    row = (Span(name, Ink.DIM), Span(line, Ink.LINE), Span(tail, Ink.STRONG))
    return fit_row(row, cells)


def _resampled(inside: Sequence[Sample], axes: Axes, cells: int) -> list[float | None]:
    """One value a cell by time, the lowest of its bucket; single holes are bridged."""
    values: list[float | None] = [None] * cells
    for point in inside:
        low, cell = finite(point.low), min(axes.column(point.t, cells), cells - 1)
        if low is not None and cell >= 0:
            old = values[cell]
            values[cell] = low if old is None else min(old, low)
    reach = max(cells // max(len(inside), 1) + 1, 1)
    filled = list(values)
    for cell, value in enumerate(values):
        if value is None and cell:
            near = [one for one in values[max(cell - reach, 0) : cell] if one is not None]
            more = [one for one in values[cell + 1 : cell + 1 + reach] if one is not None]
            filled[cell] = near[-1] if near and more else None
    return filled


def _plot_rows(
    view: View,
    points: Sequence[Sample],
    axes: Axes,
    cells: int,
    height: int,
) -> list[Row]:
    """Labels, plot and time axis."""
    plot_cells, plot_height = cells - LABEL_CELLS - 1, height - 1
    baseline = view.snapshot.board.baseline_tokens_per_s if view.snapshot else None
    inside = [point for point in points if axes.begin_t - 120 <= point.t <= axes.end_t]
    lines = braille(inside, axes, plot_cells, plot_height, baseline)
    labels = _labels(axes, finite(baseline), plot_height)
    rows: list[Row] = []
    for index, line in enumerate(lines):
        label = fit(labels.get(index, ""), LABEL_CELLS - 1, right=True) + " "
        rows.append((Span(label, Ink.DIM), *_inked(line)))
    return [*rows, _axis_row(view, axes, plot_cells)]


def _labels(axes: Axes, baseline: float | None, height: int) -> dict[int, str]:
    """Plot row -> what stands before it: the top, 0 or the bottom, the baseline between."""
    labels = {0: _label(axes.top), height - 1: _label(axes.bottom)}
    if baseline is not None and axes.bottom < baseline < axes.top:
        row = (height * 4 - 1 - axes.level(baseline, height * 4)) // 4
        if row not in labels:
            labels[row] = _label(baseline)
    return labels


def _label(value: float) -> str:
    text = count(value)
    return text if len(text) < LABEL_CELLS else count(value, short=True)


def _inked(line: str) -> Row:
    """Data and baseline dashes in their own inks."""
    spans: list[Span] = []
    start = 0
    for index in range(1, len(line) + 1):
        if index == len(line) or (line[index] == DASH) != (line[start] == DASH):
            ink = Ink.BASELINE if line[start] == DASH else Ink.LINE
            spans.append(Span(line[start:index], ink))
            start = index
    return tuple(spans)


def _axis_row(view: View, axes: Axes, cells: int) -> Row:
    """`-30 min ... -15 min ... now`, with a tick where a finding opened."""
    whole = axes.end_t - axes.begin_t
    marks: list[tuple[str, Ink]] = [(" ", Ink.DIM)] * cells

    def put(text: str, at: int, ink: Ink = Ink.DIM) -> None:
        for offset, char in enumerate(text):
            if 0 <= at + offset < cells:
                marks[at + offset] = (char, ink)

    findings = view.snapshot.board.findings if view.snapshot else ()
    for finding in findings:
        column = (
            axes.column(finding.opened_t, cells) if finding.opened_t == finding.opened_t else -1
        )
        if 0 <= column < cells and finding.severity is not Severity.INFO:
            put("│", column, severity_ink(finding.severity))
    put(f"-{window(whole)}", 0)
    half = f"-{window(whole / 2)}"
    put(half, cells // 2 - len(half) // 2)
    put("now", cells - 4)
    row: Row = (Span(" " * LABEL_CELLS),)
    for char, ink in marks:
        last = row[-1]
        row = (
            (*row[:-1], Span(last.text + char, ink)) if last.ink is ink else (*row, Span(char, ink))
        )
    return row if row_width(row) else ()


def severity_ink(severity: Severity) -> Ink:
    """Colour of a severity."""
    inks = {Severity.CRITICAL: Ink.CRITICAL, Severity.WARNING: Ink.WARN}
    return inks.get(severity, Ink.INFO)
