"""The log as it comes: follows until somebody scrolls, shows silence, can be filtered."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dflash_watch.model import LogView

from dflash_tui.cells import Ink, Row, Span, clean, fit_row
from dflash_tui.panels.frame import title
from dflash_tui.phrases import duration, known
from dflash_tui.state import Choices, Panel
from dflash_tui.theme import State
from dflash_tui.view import View

SILENCE_S = (8.0, 30.0)
"""Silence is drawn after the run's own limit, kept between these."""

DATE_FROM = 100
"""Width from which lines keep a leading date."""

_DATE = re.compile(r"^\d{4}-\d\d-\d\d[ T](?=\d\d:\d\d)")
_BAD = re.compile(r"\b(error|exception|traceback|critical|fatal|oom|out of memory|killed)\b", re.I)
_ODD = re.compile(r"\bwarn(ing)?\b", re.I)


def log_title(view: View, choices: Choices) -> Row:
    """`Log  train.log  following`."""
    focused = choices.focus is Panel.LOG
    if view.snapshot is None:
        return title("Log", focused=focused)
    log = view.snapshot.board.log
    name = clean(log.path or "").rsplit("/", 1)[-1] or "not found yet"
    parts = [name, "held" if choices.held is not None else "following"]
    if choices.needle:
        parts.append(f"filter {clean(choices.needle)}")
    if log.note:
        parts.append(clean(log.note))
    return title("Log", "  ".join(parts), focused=focused)


def matching(lines: Sequence[str], needle: str) -> list[str]:
    """Lines that contain the needle in any case; with a leading `!`, those that do not."""
    wanted, word = not needle.startswith("!"), needle.removeprefix("!").casefold()
    if not word:
        return list(lines)
    return [line for line in lines if (word in line.casefold()) is wanted]


def log(view: View, choices: Choices, lines: Sequence[str], cells: int, height: int) -> list[Row]:
    """The newest lines that match, the silence since, and what was missed while scrolled away."""
    if choices.held is not None:
        lines = choices.held
    found = matching(lines, choices.needle)
    notes = _notes(view, choices, found, cells)
    room = max(height - len(notes), 0)
    last = max(len(found) - choices.scroll, 0) if choices.held is not None else len(found)
    last = max(last, min(room, len(found)))
    shown = found[max(last - room, 0) : last] if room else []
    return [*(_line_row(line, cells) for line in shown), *notes]


def _notes(view: View, choices: Choices, found: Sequence[str], cells: int) -> list[Row]:
    if choices.held is not None:
        new = f"{choices.unseen} new · " if choices.unseen else ""
        return [fit_row((Span(f" ▼ {new}f follows again", Ink.KEY),), cells)]
    silent = _silent_s(view)
    limit = view.snapshot.limit if view.snapshot else None
    least, most = SILENCE_S
    after = most if limit is None else min(max(known(limit.seconds) or most, least), most)
    if silent is not None and silent >= after:
        return [fit_row((Span(f" ── silent for {duration(silent)} ──", Ink.WARN),), cells)]
    if not found:
        text = "no line matches the filter" if choices.needle else "no line yet"
        return [fit_row((Span(f" {text}", Ink.DIM),), cells)]
    return []


def _silent_s(view: View) -> float | None:
    """For how long no line has come, counted on while the view is old; an end is not silence."""
    if view.state is State.FINISHED:
        return None
    log_view: LogView | None = view.snapshot.board.log if view.snapshot else None
    silent = known(log_view.silent_s) if log_view else None
    return None if silent is None else silent + view.elapsed_s


def _line_row(line: str, cells: int) -> Row:
    """The line in the colour of its severity; a narrow panel leaves out the date, not the time."""
    text = clean(line)
    if cells < DATE_FROM:
        text = _DATE.sub("", text)
    ink = Ink.CRITICAL if _BAD.search(text) else Ink.WARN if _ODD.search(text) else Ink.TEXT
    return fit_row((Span(f" {text}", ink),), cells)
