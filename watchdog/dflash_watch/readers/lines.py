"""Bytes that arrive in pieces become whole, printable lines.

Knows escape codes, carriage returns and pieces torn anywhere; knows nothing of what lines mean.
Time is linear in the text, memory is bounded by LINE_LIMIT whatever arrives.
"""

from __future__ import annotations

import re

import msgspec

LINE_LIMIT = 4000
"""Characters kept of one line; the rest up to its end is dropped."""

_ESCAPE = re.compile(
    r"\x1b\[[0-?]{0,64}[ -/]{0,8}[@-~]"  # CSI: colours, cursor
    r"|\x9b[0-?]{0,64}[ -/]{0,8}[@-~]"
    r"|\x1b[\]PX^_][^\x07\x1b\r\n]{0,512}(?:\x07|\x1b\\)"  # OSC and other strings: titles, links
    r"|\x1b[ -/]{0,4}[0-~]"
)
_OPEN_ESCAPE = re.compile(
    r"(?:\x1b(?:\[[0-?]{0,64}[ -/]{0,8}|[\]PX^_][^\x07\x1b\r\n]{0,512}\x1b?|[ -/]{0,4})"
    r"|\x9b[0-?]{0,64}[ -/]{0,8})\Z"
)
_BREAK = re.compile(r"\r\n|\n|\r|\x0b|\x0c")


class Line(msgspec.Struct, frozen=True):
    """One line as it stood when it was finished or overwritten."""

    text: str
    ended: bool = True
    """False: a carriage return went back over it, so it is one state of a bar."""


def printable(text: str) -> str:
    """The text without escape codes and control characters; a tab is four blanks."""
    if text.isprintable():
        return text
    bare = _ESCAPE.sub("", text).replace("\t", "    ")
    # Odd blanks become blanks; control, direction, surrogate and unassigned characters go.
    return "".join(
        c if c.isprintable() else " " if ord(c) >= 0xA0 and c.isspace() else "" for c in bare
    )


def printable_lines(text: str) -> str:
    """The text with each of its lines printable; its line ends stay."""
    if text.isprintable():
        return text
    return "\n".join(printable(line) for line in text.split("\n"))


def escaped(json_text: str) -> str:
    """JSON in which every character that is not printable is written as an escape.

    JSON escapes only the oldest control characters; a terminal also obeys U+009B and its like.
    """
    if json_text.isprintable():
        return json_text
    return "".join(c if c.isprintable() or c == "\n" else _escape(c) for c in json_text)


def _escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))


class LineSplitter:
    """Lines out of pieces.

    Attributes:
        partial: the line being written, printable.
        newlines: line ends seen so far.
    """

    def __init__(self) -> None:
        self.partial = ""
        self.newlines = 0
        self._held = ""
        self._skip_to_break = False

    def restart(self, *, mid_line: bool) -> None:
        """Forget what was torn off.

        Args:
            mid_line: what comes next starts inside a line, which is dropped.
        """
        self.partial, self._held = "", ""
        self._skip_to_break = mid_line

    def feed(self, text: str) -> list[Line]:
        """Lines that are whole now, oldest first; states of a bar count as lines."""
        text, self._held = _hold_back(self._held + text)
        lines: list[Line] = []
        start = 0
        for found in _BREAK.finditer(text):
            self._take(text[start : found.start()])
            start = found.end()
            self._break(found.group(), lines)
        self._take(text[start:])
        return lines

    def _take(self, piece: str) -> None:
        room = LINE_LIMIT - len(self.partial)
        if room > 0 and piece and not self._skip_to_break:
            # Escape codes may be most of it, so cut generously first and exactly afterwards.
            self.partial += printable(piece[: room * 4])[:room]

    def _break(self, mark: str, lines: list[Line]) -> None:
        ends = mark != "\r"
        if not self._skip_to_break and (ends or self.partial.strip()):
            lines.append(Line(self.partial.rstrip(), ended=ends))
        self._skip_to_break = False
        self.partial = ""
        self.newlines += ends


def _hold_back(text: str) -> tuple[str, str]:
    """Text that can be read now, and its torn end: half an escape code, half a line end."""
    if text.endswith("\r"):
        return text[:-1], "\r"
    tail = text[-600:]
    torn = _OPEN_ESCAPE.search(tail)
    if torn is None:
        return text, ""
    cut = len(text) - len(tail) + torn.start()
    return text[:cut], text[cut:]
