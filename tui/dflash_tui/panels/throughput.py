"""Throughput against its baseline: a braille plot, or one spark line where there is no room."""

from __future__ import annotations

from collections.abc import Sequence

from dflash_watch.model import Severity

from dflash_tui.cells import Ink, Row, Span, clean, fit, fit_row, row_width, width
from dflash_tui.panels.frame import middle, title
from dflash_tui.phrases import count, known, pace, window
from dflash_tui.plot import DASH, Axes, Sample, braille, finite, means, nice_top, spark
from dflash_tui.state import Choices, Panel
from dflash_tui.theme import State
from dflash_tui.view import View

LABEL_CELLS = 8
PLOT_FROM_ROWS = 5
FINE_UP_TO_S = 300.0
HELD_S = 60.0
"""Steps that were made so long after the newest figure went at that speed."""


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
    unit, usual = unit_of(view), baseline_of(view)
    rest = f"{unit} · {speed_word(view)} {pace(newest_of(view), unit)}"
    if usual is not None:
        rest += f" · baseline {count(usual)} {DASH}"
    rest += f" · {window(window_s(view, choices, points))}" + (
        " · from lowest" if choices.auto_scale else ""
    )
    return title("Throughput", rest, focused=focused)


def speed_word(view: View) -> str:
    """Is the newest figure about now? Where no steps go on it is only the last one."""
    return "now" if not newest_of(view) or view.state in {State.RUNNING, State.SLOW} else "last"


def with_fall(view: View, points: Sequence[Sample]) -> list[Sample]:
    """In a stall, silence since the last step is no gap but no work.

    The line keeps its last value up to the moment of the last step and is at 0 from there on.
    """
    age = known(view.snapshot.board.last_step_age_s) if view.snapshot else None
    seen = [point for point in points if finite(point.high) is not None]
    if view.state is not State.STALLED or age is None or not seen:
        return list(points)
    end, last = now_t(view), seen[-1]
    stopped = min(max(end - age - view.elapsed_s, last.t), end)
    known_points = [point for point in points if point.t <= last.t]
    return [
        *known_points,
        last._replace(t=stopped, joined=stopped - last.t <= HELD_S),
        Sample(stopped, 0.0, 0.0, joined=True),
        Sample(end, 0.0, 0.0, joined=True),
    ]


def fine(view: View, choices: Choices, points: Sequence[Sample]) -> Sequence[Sample]:
    """The finer points of the newest minutes, where the window holds nothing older."""
    recent = view.snapshot.board.recent if view.snapshot else ()
    if not recent or window_s(view, choices, points) > FINE_UP_TO_S:
        return points
    return [
        Sample(t, point.low, point.high, point.mean)
        for point in recent
        if (t := finite(point.t)) is not None
    ]


def unit_of(view: View) -> str:
    """`tok/s`, or `steps/s` of a run that says no tokens a second."""
    return clean(view.snapshot.board.throughput_unit) if view.snapshot else "tok/s"


def newest_of(view: View) -> float | None:
    """The newest figure, in that unit."""
    if view.snapshot is None:
        return None
    board = view.snapshot.board
    in_tokens = board.throughput_unit == "tok/s"
    return known(board.tokens_per_s if in_tokens else board.steps_per_s)


def baseline_of(view: View) -> float | None:
    """The baseline, which is one of tokens."""
    board = view.snapshot.board if view.snapshot else None
    is_fit = board is not None and board.throughput_unit == "tok/s"
    return known(board.baseline_tokens_per_s) if board is not None and is_fit else None


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
    shown_s = window_s(view, choices, points)
    points = with_fall(view, fine(view, choices, points))
    axes = _axes(view, choices, points, shown_s)
    near = [
        point for point in points if point.joined or axes.begin_t - 120 <= point.t <= axes.end_t
    ]
    if height < PLOT_FROM_ROWS or cells < 40:
        return [_spark_row(view, near, axes, cells)]
    if not any(finite(point.high) is not None for point in points):
        return [(), middle("no throughput seen yet", cells)]
    return _plot_rows(view, near, axes, cells, height)


def _axes(view: View, choices: Choices, points: Sequence[Sample], shown_s: float) -> Axes:
    end = now_t(view)
    begin = end - shown_s
    inside = [point for point in points if begin <= point.t <= end]
    highs = [value for value in (finite(point.high) for point in inside) if value is not None]
    lows = [value for value in (finite(point.low) for point in inside) if value is not None]
    baseline = finite(baseline_of(view))
    top = nice_top(max([*highs, baseline or 0.0], default=0.0) * 1.05)
    bottom = 0.0
    both = lows + highs
    if choices.auto_scale and both:
        margin = max(max(both) - min(both), abs(max(both)) * 0.01, 1e-9) * 0.1
        bottom, top = min(both) - margin, max(both) + margin
    return Axes(begin, end, bottom, top)


def _spark_row(view: View, points: Sequence[Sample], axes: Axes, cells: int) -> Row:
    """` tok/s 30m ▇▇▇▇▆▁ now 6 120 base 6 000`."""
    unit, usual = unit_of(view), baseline_of(view)
    name = f" {unit} {window(axes.end_t - axes.begin_t, short=True)} "
    tail = f" {speed_word(view)} {pace(newest_of(view), unit)}"
    if usual is not None:
        tail += f" base {count(usual)}"
    room = max(cells - len(name) - width(tail) - 1, 0)
    line = spark(means(points, axes, room), room, axes.top)
    row = (Span(name, Ink.DIM), Span(line, Ink.LINE), Span(tail, Ink.STRONG))
    return fit_row(row, cells)


def _plot_rows(
    view: View,
    points: Sequence[Sample],
    axes: Axes,
    cells: int,
    height: int,
) -> list[Row]:
    """Labels, plot and time axis."""
    plot_cells, plot_height = cells - LABEL_CELLS - 1, height - 1
    baseline = baseline_of(view)
    lines = braille(points, axes, plot_cells, plot_height, baseline)
    labels = _labels(axes, finite(baseline), plot_height, unit_of(view))
    rows: list[Row] = []
    for index, line in enumerate(lines):
        label = fit(labels.get(index, ""), LABEL_CELLS - 1, right=True) + " "
        rows.append((Span(label, Ink.DIM), *_inked(line)))
    return [*rows, _axis_row(view, axes, plot_cells)]


def _labels(axes: Axes, baseline: float | None, height: int, unit: str) -> dict[int, str]:
    """Plot row -> what stands before it: the top, 0 or the bottom, the baseline between."""
    labels = {0: _label(axes.top, unit), height - 1: _label(axes.bottom, unit)}
    if baseline is not None and axes.bottom < baseline < axes.top:
        row = (height * 4 - 1 - axes.level(baseline, height * 4)) // 4
        if row not in labels:
            labels[row] = _label(baseline, unit)
    return labels


def _label(value: float, unit: str) -> str:
    text = pace(value, unit)
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
