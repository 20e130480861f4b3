"""Text as terminal cells: spans, rows, and rows that are exactly as wide as asked.

A row is a tuple of spans; a span is text and the role it plays (`Ink`), never a colour. Outside
text passes `clean` before it becomes a span, so that nothing in a log or a name can move the
cursor, turn the writing direction or take another width than counted. Imports no textual.
"""

from __future__ import annotations

import unicodedata
from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple

from rich.cells import get_character_cell_size


class Ink(StrEnum):
    """What a span is; `theme.py` says how that looks."""

    TEXT = "text"
    STRONG = "strong"
    DIM = "dim"
    RULE = "rule"
    TITLE = "title"
    FOCUS = "focus"
    TARGET = "target"
    DRAFTER = "drafter"
    QUEUE = "queue"
    HISTORY = "history"
    LINE = "line"
    BASELINE = "baseline"
    INFO = "info"
    WARN = "warn"
    CRITICAL = "critical"
    KEY = "key"
    RUNNING = "running"
    SLOW = "slow"
    QUIET = "quiet"
    INITIALISING = "initialising"
    STALLED = "stalled"
    CRASHED = "crashed"
    FINISHED = "finished"
    BLIND = "blind"
    CONNECTING = "connecting"
    NO_RUN = "no-run"


class Span(NamedTuple):
    """Text in one ink."""

    text: str
    ink: Ink = Ink.TEXT


Row = tuple[Span, ...]
BLANK: Final[Row] = ()


@lru_cache(maxsize=4096)
def _safe(char: str) -> str:
    """One character as it may stand on the screen: itself, a blank, a dot, or nothing."""
    if char in "\t\n\r\v\f\x85":
        return " "
    category = unicodedata.category(char)
    if category in {"Cc", "Cf", "Mn", "Me", "Sk"} and not char.isascii():
        return ""
    if category == "Cc":
        return ""
    if category in {"Zs", "Zl", "Zp"}:
        return " "
    if category in {"Cs", "Co", "Cn"} or unicodedata.bidirectional(char) in {"R", "AL", "AN"}:
        return "·"  # middle dot: something stood here that a terminal may draw anywhere
    if 0x1F1E6 <= ord(char) <= 0x1F1FF or get_character_cell_size(char) == 0:
        return "·"
    return char


_ESCAPES: Final = {"\x1b": True, "\x9b": True}


def _without_escapes(text: str) -> str:
    """`text` without CSI and OSC sequences, as far as they are whole; stray ESC go in `_safe`."""
    if not any(mark in text for mark in _ESCAPES):
        return text
    kept: list[str] = []
    index = 0
    while index < len(text):
        char = text[index]
        if char not in _ESCAPES:
            kept.append(char)
            index += 1
            continue
        index = _after_escape(text, index)
    return "".join(kept)


def _after_escape(text: str, index: int) -> int:
    """Index behind the sequence that starts at `index`."""
    opener = "[" if text[index] == "\x9b" else text[index + 1 : index + 2]
    index += 1 if text[index] == "\x9b" else 2
    if opener == "[":
        while index < len(text) and not "@" <= text[index] <= "~":
            index += 1
        return index + 1
    if opener in {"]", "P", "X", "^", "_"}:
        while index < len(text) and text[index] not in "\x07\x1b":
            index += 1
        return index + (2 if text[index : index + 2] == "\x1b\\" else 1)
    return index


def clean(text: str) -> str:
    """Outside text on one line, every character 1 or 2 cells wide, left to right."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_safe, _without_escapes(text)))


def width(text: str) -> int:
    """Cells that `text` takes; for cleaned text and our own glyphs."""
    return len(text) if text.isascii() else sum(map(get_character_cell_size, text))


def cut(text: str, cells: int, mark: str = "…") -> str:
    """At most `cells` wide; what was cut is marked."""
    if width(text) <= cells:
        return text
    if cells <= 0:
        return ""
    room = cells - len(mark)
    taken: list[str] = []
    for char in text:
        room -= get_character_cell_size(char)
        if room < 0:
            break
        taken.append(char)
    return "".join(taken) + mark[: max(cells, 0)]


def fit(text: str, cells: int, *, right: bool = False) -> str:
    """Exactly `cells` wide: cut with a mark, or padded on the other side."""
    short = cut(text, cells)
    pad = " " * (cells - width(short))
    return pad + short if right else short + pad


def row_width(row: Row) -> int:
    """Cells that a row takes."""
    return sum(width(span.text) for span in row)


def fit_row(row: Row, cells: int, fill: Ink = Ink.TEXT) -> Row:
    """The row exactly `cells` wide; the cut is marked in the ink it happens in."""
    spans: list[Span] = []
    room = cells
    for position, span in enumerate(row):
        size = width(span.text)
        if size > room or (size == room and any(later.text for later in row[position + 1 :])):
            short = cut(span.text + "  ", room)
            spans.append(Span(short + " " * (room - width(short)), span.ink))
            return tuple(spans)
        if span.text:
            spans.append(span)
        room -= size
    if room > 0:
        spans.append(Span(" " * room, fill))
    return tuple(spans)


def spread(left: Row, right: Row, cells: int, fill: Ink = Ink.TEXT) -> Row:
    """`left` and `right` at the two edges: the left is cut, the right not."""
    size = row_width(right)
    if size >= cells:
        return fit_row(right, cells, fill)
    return (*fit_row(left, cells - size, fill), *right)


def row_text(row: Row) -> str:
    """Only the characters."""
    return "".join(span.text for span in row)


def blank_rows(height: int, cells: int) -> list[Row]:
    """`height` empty rows."""
    return [(Span(" " * cells),) if cells > 0 else BLANK for _ in range(max(height, 0))]


def fill_rows(rows: list[Row], height: int, cells: int) -> list[Row]:
    """Exactly `height` rows of exactly `cells`: cut at the end, or padded with empty ones."""
    exact = [fit_row(row, cells) for row in rows[: max(height, 0)]]
    return exact + blank_rows(height - len(exact), cells)


def paint(rows: list[Row], ink: Ink, *, spare: frozenset[Ink] = frozenset()) -> list[Row]:
    """All spans in one ink, except those of `spare`: how old values lose their colour."""
    return [
        tuple(span if span.ink in spare else Span(span.text, ink) for span in row) for row in rows
    ]
