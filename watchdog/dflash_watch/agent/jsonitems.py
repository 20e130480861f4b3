"""The objects of one JSON array, one by one while its text arrives: memory stays that of one."""

from __future__ import annotations

import codecs
import json
from typing import Any, Callable, Dict

GROWTH = 1.5
"""An object that was not whole is tried again when there is so much more text."""


class JsonItems:
    """Feeds each element of the array to `keep` once it is whole.

    Args:
        keep: gets the elements, in order.
    """

    def __init__(self, keep: Callable[[Dict[str, Any]], None]) -> None:
        self._keep = keep
        self._decode = codecs.getincrementaldecoder("utf-8")("replace")
        self._scan = json.JSONDecoder().raw_decode
        self._text = ""
        self._try_at = 0
        self._has_begun = False
        self.is_whole = False
        """The array's end has been seen."""

    def feed(self, data: bytes) -> None:
        """More of the text.

        Raises:
            ValueError: it is no array of objects.
        """
        self._text += self._decode.decode(data)
        if len(self._text) >= self._try_at:
            self._take()

    def finish(self) -> None:
        """No more text will come.

        Raises:
            ValueError: it is no array.
        """
        self._text += self._decode.decode(b"", final=True)
        self._take()

    def _take(self) -> None:
        place = 0
        while not self.is_whole:
            place = _next(self._text, place)
            if place == len(self._text):
                break
            if not self._has_begun:
                if self._text[place] != "[":
                    raise ValueError(f"an array expected, got {self._text[place : place + 40]!r}")
                self._has_begun, place = True, place + 1
                continue
            if self._text[place] == "]":
                self.is_whole = True
                break
            if self._text[place] != "{":
                raise ValueError(f"an object expected, got {self._text[place : place + 40]!r}")
            try:
                item, place = self._scan(self._text, place)
            except (ValueError, RecursionError):
                break
            self._keep(item)
        self._text = self._text[place:]
        self._try_at = int(len(self._text) * GROWTH)


def _next(text: str, place: int) -> int:
    """Where the next word begins: blanks and commas are skipped."""
    while place < len(text) and text[place] in " \t\r\n,":
        place += 1
    return place
