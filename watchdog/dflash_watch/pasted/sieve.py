"""A large log cut down to what may tell something: its head, its end, and lines of trouble between.

Bytes come in chunks and leave as at most a megabyte of text. Words are looked for with the
fastest search there is, since a log of 200 MB has to be read in seconds; memory does not grow with
the file. A line of 100 MB is cut, bytes that are no text are replaced.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from dflash_watch.readers.encoding import text_of

WHOLE_BYTES = 1 << 20
"""Most of a log that is read without cutting it down."""
HEAD_BYTES, TAIL_BYTES = 96 << 10, 384 << 10
FIRST_BYTES, LAST_BYTES = 256 << 10, 192 << 10
"""Of the lines between: the first ones, where causes lie, and the newest."""
DUMP_BYTES = 2 << 20
"""Of stack dumps between the lines: as many bytes of the first ones and of the newest."""
CHUNK_BYTES = 4 << 20
LINE_BYTES = 4000
AFTER_TRACEBACK_LINES, AFTER_LINES = 60, 2
SAME_SHAPE = 6
"""Lines of one shape that are kept."""
HITS = 4000
"""Occurrences of one word in a chunk that are followed."""
TROUBLE = (
    b"traceback", b"error", b"exception", b"fail", b"killed", b"died", b"nccl", b"xid", b"fatal",
    b"abort", b"timed out", b"timeout", b"nan", b"overflow", b"out of memory", b"no space",
    b"signal", b"assert", b"stale", b"warn",
)  # fmt: skip
DUMPS = (b"(most recent call first)", b"thread 0x", b'"mainthread"', b"(lwp ")
_SHAPE = re.compile(rb"[\d:.,/+\-]+|0x[0-9a-f]+")


class Sieved:
    """What is left of a log.

    Attributes:
        text: to be read as a log.
        dumps: stack dumps found between its lines, as text.
        left_out_bytes: of the file, not in `text`.
    """

    def __init__(self, text: str, dumps: str, left_out_bytes: int) -> None:
        self.text, self.dumps, self.left_out_bytes = text, dumps, left_out_bytes


def sieve(file: BinaryIO, most: int | None = None) -> Sieved:
    """Read a log to its end, whatever its size and content.

    Args:
        file: at its start.
        most: bytes, so that a log that grows while it is read has an end too; None for a pipe.
    """
    head = file.read(WHOLE_BYTES + 1)
    if len(head) <= WHOLE_BYTES:
        text = text_of(head)
        return Sieved(text, text, 0)
    reading = _Reading()
    reading.feed(head)
    left = sys.maxsize if most is None else most - len(head)
    while left > 0 and (chunk := file.read(min(CHUNK_BYTES, left))):
        reading.feed(chunk)
        left -= len(chunk)
    return reading.result()


class _Kept:
    """Pieces of bytes up to a budget: the first, and a ring of the newest."""

    def __init__(self, first: int, last: int) -> None:
        self._room, self._last = first, last
        self._first: list[bytes] = []
        self._newest: list[bytes] = []
        self._size = 0

    def add(self, piece: bytes) -> None:
        if self._room > 0:
            self._first.append(piece)
            self._room -= len(piece)
            return
        self._newest.append(piece)
        self._size += len(piece)
        while self._size > self._last and len(self._newest) > 1:
            self._size -= len(self._newest.pop(0))

    def pieces(self) -> list[bytes]:
        return [*self._first, *self._newest]


class _Reading:
    def __init__(self) -> None:
        self._head = b""
        self._tail = b""
        self._carried = b""
        self._size = 0
        self._lines = _Kept(FIRST_BYTES, LAST_BYTES)
        self._dumps = _Kept(DUMP_BYTES, DUMP_BYTES)
        self._shapes: Counter[bytes] = Counter()

    def feed(self, chunk: bytes) -> None:
        self._size += len(chunk)
        if len(self._head) < HEAD_BYTES:
            self._head += chunk[: HEAD_BYTES - len(self._head)]
        self._tail = (self._tail + chunk)[-TAIL_BYTES:]
        block = self._carried + chunk
        # What a traceback or dump at the end goes on with comes with the next chunk.
        cut = block.rfind(b"\n", 0, max(len(block) - LINE_BYTES * 4, 0)) + 1
        self._search(block[:cut] if cut else block)
        self._carried = block[cut:][-LINE_BYTES * 4 :] if cut else b""

    def _search(self, block: bytes) -> None:
        low = block.lower()
        until = 0
        for at, word in sorted(_hits(low, TROUBLE)):
            if at < until:
                continue
            begin, end = _line_around(block, at)
            if self._is_known(low[begin:end]):
                continue
            more = AFTER_TRACEBACK_LINES if word == b"traceback" else AFTER_LINES
            until = _lines_after(block, end, more)
            self._lines.add(block[begin:until])
        for begin, end in _regions(at for at, _ in _hits(low, DUMPS)):
            first = _line_around(block, begin)[0]
            self._dumps.add(block[first : _lines_after(block, end, AFTER_TRACEBACK_LINES)] + b"\n")

    def _is_known(self, line: bytes) -> bool:
        shape = _SHAPE.sub(b"#", line)[:200]
        if len(self._shapes) < 20_000 or shape in self._shapes:
            self._shapes[shape] += 1
        return self._shapes[shape] > SAME_SHAPE

    def result(self) -> Sieved:
        self._search(self._carried)
        head, tail = self._head, self._tail
        between = b"\n".join(piece.rstrip(b"\n") for piece in self._lines.pieces())
        parts = [head[: head.rfind(b"\n") + 1] or head, between, tail[tail.find(b"\n") + 1 :]]
        text = "\n".join(part.decode(errors="replace") for part in parts)
        dumps = b"".join(self._dumps.pieces()).decode(errors="replace")
        return Sieved(text, dumps, max(self._size - sum(map(len, parts)), 0))


def _hits(low: bytes, words: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    for word in words:
        at = low.find(word)
        for _ in range(HITS):
            if at < 0:
                break
            yield at, word
            at = low.find(word, at + LINE_BYTES // 40)


def _line_around(block: bytes, at: int) -> tuple[int, int]:
    begin = block.rfind(b"\n", max(at - LINE_BYTES, 0), at) + 1 or max(at - LINE_BYTES, 0)
    end = block.find(b"\n", at, at + LINE_BYTES)
    return begin, end + 1 if end >= 0 else min(at + LINE_BYTES, len(block))


def _lines_after(block: bytes, at: int, count: int) -> int:
    for _ in range(count):
        end = block.find(b"\n", at, at + LINE_BYTES)
        if end < 0:
            return min(at + LINE_BYTES, len(block))
        at = end + 1
    return at


def _regions(hits: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Places that are near each other, as spans."""
    begin = end = None
    for at in sorted(hits):
        if begin is None or end is None:
            begin = end = at
        elif at - end > 4 * LINE_BYTES:
            yield begin, end
            begin = end = at
        else:
            end = at
    if begin is not None and end is not None:
        yield begin, end
