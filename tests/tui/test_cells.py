"""Rows are exactly as wide as asked, whatever the text."""

import pytest
from dflash_tui.cells import Ink, Span, clean, cut, fit, fit_row, row_text, row_width, spread, width
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

HOSTILE = {
    "colour escape": ("\x1b[31mred\x1b[0m", "red"),
    "title escape": ("\x1b]0;owned\x07text", "text"),
    "eight-bit escape": ("\x9b2Jtext", "text"),
    "cursor escape cut off": ("text\x1b[", "text"),
    "carriage return": ("10%\r20%", "10% 20%"),
    "backspace": ("abc\b\b", "abc"),
    "right to left override": ("abc\u202edef", "abcdef"),
    "hebrew": ("a\u05d0b", "a·b"),
    "zero width": ("a\u200bb\u0301", "ab"),
    "wide": ("模型", "模型"),
    "null": ("a\x00b", "ab"),
    "markup": ("[bold]x[/]", "[bold]x[/]"),
}


@pytest.mark.parametrize(("raw", "safe"), HOSTILE.values(), ids=HOSTILE.keys())
def test_outside_text_cannot_move_the_cursor_or_turn_the_line(raw: str, safe: str) -> None:
    assert clean(raw) == safe


@given(st.text())
def test_cleaned_text_has_the_width_that_the_framework_counts(text: str) -> None:
    safe = clean(text)
    assert width(safe) == cell_len(safe)
    assert clean(safe) == safe


@given(st.text(), st.integers(0, 40), st.booleans())
def test_fitted_text_is_exactly_as_wide_as_asked(text: str, cells: int, right: bool) -> None:
    assert cell_len(fit(clean(text), cells, right=right)) == cells


@given(st.lists(st.text(max_size=12), max_size=6), st.integers(1, 40))
def test_a_fitted_row_is_exactly_as_wide_as_asked(texts: list[str], cells: int) -> None:
    row = tuple(Span(clean(text)) for text in texts)
    assert row_width(fit_row(row, cells)) == cells


def test_a_cut_is_marked() -> None:
    assert cut("abcdef", 4) == "abc…"
    assert row_text(fit_row((Span("abc"), Span("def")), 5)) == "abcd…"
    assert row_text(fit_row((Span("abc"), Span("def")), 3)) == "ab…"


def test_a_wide_character_that_does_not_fit_leaves_a_blank() -> None:
    assert fit("模型模型", 4) == "模… "


def test_the_right_edge_is_never_cut_for_the_left() -> None:
    row = spread((Span("a long left text"),), (Span("data 3 s old", Ink.DIM),), 20)
    assert row_text(row) == "a long …data 3 s old"
