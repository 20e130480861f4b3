"""The whole screen as rows: pure, so that it can be tested, printed and photographed anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dflash_tui.cells import Ink, Row, Span, fill_rows, fit_row, paint, row_text
from dflash_tui.keys import Key
from dflash_tui.layout import MIN_HEIGHT, MIN_WIDTH, Box, is_small, layout
from dflash_tui.panels import findings, foot, head, log, pages, pipeline, throughput
from dflash_tui.panels.frame import boxed, middle, ruled, title
from dflash_tui.state import Choices, Panel, Shown
from dflash_tui.theme import State

ALIVE = frozenset({Ink.RULE, Ink.TITLE, Ink.FOCUS})
"""Inks that keep their colour while the values are old."""


LIVE = frozenset({Panel.DETAILS, Panel.HELP})
"""Pages that show the newest figures even while the panels are paused."""


class Screen(NamedTuple):
    """Everything that decides what is drawn."""

    shown: Shown
    choices: Choices
    keys: Sequence[Key]
    now_s: float

    @property
    def still(self) -> Shown:
        """What the panels draw: as it was when paused, else as it is."""
        return self.choices.paused or self.shown


class Stills:
    """Panels that are paused are drawn once: until a key, another size or another state."""

    def __init__(self) -> None:
        self._of: tuple[Choices, tuple[int, int, int, bool]] | None = None
        self._rows: list[Row] = []

    def panels(self, screen: Screen, width: int, height: int, top: int) -> list[Row]:
        """As `draw_panels`."""
        if screen.choices.paused is None:
            self._of = None
            return draw_panels(screen, width, height, top)
        place = (width, height, top, screen.shown.view.frozen)
        boxes = boxes_of(screen, width, height)
        is_live = any(box.panel in LIVE for box in boxes)
        if is_live or self._of is None or self._of[0] is not screen.choices or self._of[1] != place:
            self._of = (screen.choices, place)
            self._rows = draw_panels(screen, width, height, top)
        return self._rows


def compose(screen: Screen, width: int, height: int, stills: Stills | None = None) -> list[Row]:
    """`height` rows of exactly `width` cells.

    Args:
        screen: what decides it.
        width: in cells.
        height: in rows.
        stills: what was drawn of paused panels; None draws them anew.
    """
    if width <= 0 or height <= 0:
        return []
    if is_small(width, height):
        return _small(screen, width, height)
    top = _top_rows(screen, width, height)
    drawn = (stills or Stills()).panels(screen, width, height, len(top))
    last = foot.foot(screen.choices, screen.keys, screen.now_s, width)
    return [*top, *drawn, last]


def draw_panels(screen: Screen, width: int, height: int, top: int) -> list[Row]:
    """The rows between the head of `top` rows and the key line."""
    drawn = [(box, _draw(screen, box)) for box in boxes_of(screen, width, height)]
    return [_across(drawn, y, width) for y in range(top, height - 1)]


def boxes_of(screen: Screen, width: int, height: int) -> list[Box]:
    """Where the panels stand; nothing on a screen that is too small."""
    if is_small(width, height):
        return []
    top = len(_top_rows(screen, width, height))
    view = screen.still.view
    inner = width - 2 if width < 160 else max(round(width * 0.6), 104) - 2
    known = None if view.state is State.CONNECTING else view.snapshot
    wanted = 9 if known is None else pipeline.rows_wanted(known.board, inner)
    return layout(width, height, top, wanted, screen.choices)


def _top_rows(screen: Screen, width: int, height: int) -> list[Row]:
    view, choices = screen.shown.view, screen.choices
    rows = [head.header(view, choices, width)] if choices.header else []
    rows += [head.banner(view, choices, width), head.why(view, width)]
    if height >= 20 and head.needs_action(view):
        rows.append(head.what_to_do(view, width))
    return rows


def _across(drawn: Sequence[tuple[Box, list[Row]]], y: int, width: int) -> Row:
    """One screen row out of the boxes that stand side by side."""
    parts = sorted(
        (box.x, rows[y - box.y]) for box, rows in drawn if box.y <= y < box.y + box.height
    )
    return fit_row(tuple(span for _, row in parts for span in row), width)


def _draw(screen: Screen, box: Box) -> list[Row]:
    """A panel with its frame."""
    inner = box.width - 2 if box.framed else box.width
    room = box.height - 2 if box.framed else box.height - 1
    name, body = _content(screen, box.panel, inner, max(room, 0))
    body = fill_rows(body, max(room, 0), inner)
    if screen.shown.view.frozen and box.panel not in {Panel.FINDINGS, Panel.DETAILS, Panel.HELP}:
        body = paint(body, Ink.DIM, spare=ALIVE)
    frame = boxed if box.framed else ruled
    return frame(name, body, box.width, box.height)


def _content(screen: Screen, panel: Panel, cells: int, height: int) -> tuple[Row, list[Row]]:
    """Title and rows of a panel."""
    (view, points, lines), choices = screen.still, screen.choices
    match panel:
        case Panel.PIPELINE:
            body = pipeline.pipeline(view, choices, cells, height)
            return pipeline.pipeline_title(view, choices), body
        case Panel.THROUGHPUT:
            body = throughput.throughput(view, choices, points, cells, height)
            return throughput.throughput_title(view, choices, points), body
        case Panel.FINDINGS:
            body = findings.findings(view, choices, cells, height)
            return findings.findings_title(view, choices), body
        case Panel.LOG:
            return log.log_title(view, choices), log.log(view, choices, lines, cells, height)
        case Panel.DETAILS:
            rows, name = pages.details(screen.shown.view, cells), "All that is known"
        case Panel.HELP:
            rows, name = pages.help_page(screen.keys, cells), "Help"
    first = min(choices.scroll, max(len(rows) - height, 0))
    more = f"{first + 1}-{min(first + height, len(rows))} of {len(rows)}  esc closes"
    return title(name, more, focused=True), rows[first:]


def _small(screen: Screen, width: int, height: int) -> list[Row]:
    """Only what matters, in the middle."""
    view, choices = screen.shown.view, screen.choices
    rows: list[Row] = [head.banner(view, choices, width), head.why(view, width)]
    if view.snapshot is not None:
        board = view.snapshot.board
        if board.queue is not None:
            rows.append(pipeline.queue_row(board.queue, width))
        rows += throughput.throughput(view, choices, screen.shown.points, width, 1)
    rows.append(middle(f"needs {MIN_WIDTH}x{MIN_HEIGHT}, has {width}x{height}", width))
    above: list[Row] = [(Span(""),)] * max((height - len(rows)) // 2, 0)
    return fill_rows([*above, *rows], height, width)


def text_of(rows: Sequence[Row]) -> str:
    """The screen as plain text, one line a row."""
    return "\n".join(row_text(row).rstrip() for row in rows) + "\n"
