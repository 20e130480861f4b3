"""The last row: the keys, or a question, or the filter being typed, or a short answer."""

from __future__ import annotations

from collections.abc import Sequence

from dflash_tui.cells import Ink, Row, Span, clean, fit_row
from dflash_tui.keys import Key
from dflash_tui.state import Choices


def foot(choices: Choices, keys: Sequence[Key], now_s: float, cells: int) -> Row:
    """One row; what is asked of the person comes first."""
    if choices.asking is not None:
        return fit_row((Span(f" {choices.asking} ", Ink.QUEUE), Span(" y yes   n no")), cells)
    if choices.typing is not None:
        typed = clean(choices.typing)
        hint = "   enter: keep  esc: leave  ! first: without"
        return fit_row(
            (Span(f" / {typed}", Ink.STRONG), Span("▏", Ink.KEY), Span(hint, Ink.DIM)), cells
        )
    if choices.notice and now_s < choices.notice_until_s:
        return fit_row((Span(f" {clean(choices.notice)}", Ink.INFO),), cells)
    row: list[Span] = []
    for key, begin, end in key_places(keys, cells):
        del begin, end
        row += [Span(f" {key.shown}", Ink.KEY), Span(f" {key.label} ", Ink.DIM)]
    return fit_row(tuple(row), cells)


def key_places(keys: Sequence[Key], cells: int) -> list[tuple[Key, int, int]]:
    """Which keys fit, by rank, in their order, and where each stands: first column and one past."""
    labelled = [key for key in keys if key.label]
    by_rank = sorted(labelled, key=lambda key: key.rank)
    chosen: set[str] = set()
    room = cells
    for key in by_rank:
        size = len(key.shown) + len(key.label) + 3
        if size <= room:
            chosen.add(key.action)
            room -= size
    places: list[tuple[Key, int, int]] = []
    column = 0
    for key in labelled:
        if key.action in chosen:
            size = len(key.shown) + len(key.label) + 3
            places.append((key, column, column + size))
            column += size
    return places
