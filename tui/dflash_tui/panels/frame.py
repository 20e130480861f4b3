"""Titles, boxes and rules around a panel's rows."""

from __future__ import annotations

from dflash_tui.cells import Ink, Row, Span, cut, fill_rows, fit_row, row_width


def boxed(title: Row, body: list[Row], width: int, height: int) -> list[Row]:
    """The body in a box with the title in its upper edge; exactly width by height."""
    if width < 4 or height < 2:
        return fill_rows(body, height, width)
    inner = width - 2
    name = fit_row(title, min(row_width(title), inner - 3))
    line = "─" * (inner - row_width(name) - 3)
    top = (Span("╭─ ", Ink.RULE), *name, Span(f" {line}╮", Ink.RULE))
    side = Span("│", Ink.RULE)
    rows = [(side, *row, side) for row in fill_rows(body, height - 2, inner)]
    return [top, *rows, (Span(f"╰{'─' * inner}╯", Ink.RULE),)]


def ruled(title: Row, body: list[Row], width: int, height: int) -> list[Row]:
    """The body under a rule that carries the title; exactly width by height."""
    name = fit_row(title, max(min(row_width(title), width - 2), 0))
    line = "─" * (width - row_width(name) - 1)
    top: Row = (Span("─", Ink.RULE), *name, Span(line, Ink.RULE))
    return [fit_row(top, width), *fill_rows(body, height - 1, width)][: max(height, 0)]


def title(name: str, rest: str = "", *, focused: bool = False, ink: Ink = Ink.DIM) -> Row:
    """A panel's name, bright when focused, and what belongs to it."""
    head = Span(name, Ink.FOCUS if focused else Ink.TITLE)
    return (head, Span(f"  {rest}", ink)) if rest else (head,)


def middle(text: str, width: int, ink: Ink = Ink.DIM) -> Row:
    """A line in the middle of the row."""
    short = cut(text, width)
    return fit_row((Span(" " * ((width - len(short)) // 2)), Span(short, ink)), width)
