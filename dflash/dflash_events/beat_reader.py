"""Reads a beat page from outside: plain dicts in the shape of the watchdog's frames."""

from __future__ import annotations

import os
import struct
import time
from typing import Any

from dflash_events import layout as at
from dflash_events.identity import Identity, is_alive
from dflash_events.schema import STATES, WAITS, RunDirError

_TRIES = 50
_WORD = 8


class BeatReader:
    """Keeps a page open and reads it as often as asked.

    Args:
        path: the page, from run.json; see `dflash_events.reader.beats_path`.
        expect: identity of the run; a page of any other process reads as `foreign`. None: the page
            is foreign unless the process that wrote it lives.

    Raises:
        RunDirError: not there, not readable, or not a beat page.
    """

    def __init__(self, path: str | os.PathLike[str], *, expect: Identity | None = None) -> None:
        self.path, self.expect = os.fspath(path), expect
        self.torn = 0
        """How often a slot did not come out whole."""
        try:
            self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            raise RunDirError(f"beat page {self.path}: {error.strerror or error}") from error
        try:
            header = self._words(0, at.HEADER_WORDS)
            self._check(header)
        except RunDirError:
            os.close(self._fd)
            raise
        self.identity = _identity(header)
        self._texts: list[str] = []
        self._whole_before: dict[int, tuple[int, ...]] = {}

    def __enter__(self) -> BeatReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the descriptor back."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def is_current(self) -> bool:
        """Whether the path still names the page that is open here."""
        try:
            now = os.stat(self.path)
        except OSError:
            return False
        ours = os.fstat(self._fd)
        return (now.st_ino, now.st_dev) == (ours.st_ino, ours.st_dev)

    def read(self, now_ns: int | None = None) -> dict[str, Any]:
        """The page as `BeatPage` of the watchdog's frame.py: ages in seconds, None where unknown.

        Args:
            now_ns: CLOCK_MONOTONIC of the machine the run is on; None takes it from the clock.

        Raises:
            RunDirError: the page was cut meanwhile.
        """
        header = self._words(0, at.HEADER_WORDS)
        self._load_texts(header)
        foreign = self._is_foreign()
        used = min(max(header[at.H_SLOTS_USED], 0), at.SLOTS)
        slots = self._whole(at.SLOTS_AT, at.SLOT_WORDS, at.S_BEGIN, used)
        ticker = self._whole(at.TICKER, at.TICKER_WORDS, at.T_BEGIN, 1)[0]
        # After the slots: what was stored while we read has an age of at least zero.
        now = time.monotonic_ns() if now_ns is None else now_ns
        phase = self._text(header[at.H_PHASE])
        return {
            "workers": [self._worker(slot, phase, now) for slot in slots],
            "ticker": _ticker(ticker, now),
            "events_dropped": header[at.H_DROPPED],
            "write_errors": header[at.H_WRITE_ERRORS],
            "last_error": _error_text(header[at.H_LAST_ERRNO]),
            "foreign": foreign,
        }

    def _is_foreign(self) -> bool:
        if self.expect is not None:
            return not self.identity.same_as(self.expect)
        return not is_alive(self.identity)

    def _check(self, header: tuple[int, ...]) -> None:
        if header[at.H_MAGIC] != at.MAGIC:
            raise RunDirError(f"beat page {self.path}: not a beat page (its first bytes differ)")
        if header[at.H_SCHEMA] != at.LAYOUT_SCHEMA:
            raise RunDirError(
                f"beat page {self.path}: layout {header[at.H_SCHEMA]}, this reader knows "
                f"{at.LAYOUT_SCHEMA}",
                hint="use a watchdog as new as the trainer",
            )

    def _words(self, start: int, count: int) -> tuple[int, ...]:
        try:
            raw = os.pread(self._fd, count * _WORD, start * _WORD)
        except OSError as error:
            raise RunDirError(f"beat page {self.path}: {error.strerror or error}") from error
        if len(raw) != count * _WORD:
            raise RunDirError(
                f"beat page {self.path}: ends after {start * _WORD + len(raw)} bytes, expected "
                f"{at.PAGE_BYTES}"
            )
        return struct.unpack(f"<{count}q", raw)

    def _whole(self, start: int, size: int, begin: int, count: int) -> list[tuple[int, ...]]:
        """`count` blocks of `size` words, each as one change left it.

        Word 0 of a block is its END, word `begin` its BEGIN. A writer taken off its core or
        killed in mid-store leaves a block torn for longer: then it is what it was at the look
        before, and at the first look what stands there.
        """
        blocks = self._blocks(start, size, count)
        for number in range(count):
            tries = 0
            while blocks[number][0] != blocks[number][begin]:
                tries += 1
                if tries > _TRIES:
                    self.torn += 1
                    blocks[number] = self._whole_before.get(start + number, blocks[number])
                    break
                blocks[number] = self._words(start + number * size, size)
            self._whole_before[start + number] = blocks[number]
        return blocks

    def _blocks(self, start: int, size: int, count: int) -> list[tuple[int, ...]]:
        if not count:
            return []
        words = self._words(start, size * count)
        return [words[first : first + size] for first in range(0, size * count, size)]

    def _load_texts(self, header: tuple[int, ...]) -> None:
        used = min(max(header[at.H_TEXTS_USED], 0), at.TEXTS)
        if used <= len(self._texts):
            return
        first, raw = len(self._texts), b""
        words = self._words(at.TEXTS_AT + first * at.TEXT_WORDS, (used - first) * at.TEXT_WORDS)
        raw = struct.pack(f"<{len(words)}q", *words)
        self._texts += [
            at.decode_text(raw[place : place + at.TEXT_BYTES])
            for place in range(0, len(raw), at.TEXT_BYTES)
        ]

    def _text(self, number: int) -> str | None:
        return self._texts[number] if 0 < number < len(self._texts) else None

    def _worker(self, slot: tuple[int, ...], run_phase: str | None, now: int) -> dict[str, Any]:
        return {
            "name": self._text(slot[at.S_NAME]) or "?",
            "role": self._text(slot[at.S_ROLE]) or "other",
            "device": self._text(slot[at.S_DEVICE]),
            "tid": _known(slot[at.S_TID]),
            "phase": self._text(slot[at.S_PHASE]) or run_phase,
            "step": _known(slot[at.S_STEP]),
            "items": _known(slot[at.S_ITEMS]),
            "queue_depth": _known(slot[at.S_DEPTH]),
            "queue_capacity": _known(slot[at.S_CAPACITY]),
            "progress_age_s": _age(slot[at.S_PROGRESS_NS], now),
            "wait": _name(WAITS, slot[at.S_WAIT]),
            "wait_age_s": _age(slot[at.S_WAIT_NS], now) if slot[at.S_WAIT] else None,
            "waits_for": self._text(slot[at.S_WAITS_FOR]),
            "wait_object": self._text(slot[at.S_WAIT_OBJECT]),
            "state": _name(STATES, slot[at.S_STATE]),
        }


def page_identity(path: str | os.PathLike[str]) -> Identity | None:
    """Who wrote the page at `path`; None where it is no whole page."""
    try:
        with BeatReader(path) as reader:
            return reader.identity
    except RunDirError:
        return None


def _identity(header: tuple[int, ...]) -> Identity:
    boot = struct.pack("<5q", *header[at.H_BOOT_ID : at.H_BOOT_ID + 5])
    return Identity(
        header[at.H_PID],
        header[at.H_START_TICKS],
        at.decode_text(boot) or None,
        _known(header[at.H_PID_NAMESPACE]),
    )


def _ticker(words: tuple[int, ...], now: int) -> dict[str, Any] | None:
    age = _age(words[at.T_NS], now)
    if age is None:
        return None
    return {
        "beats": words[at.T_BEATS],
        "age_s": age,
        "late_s": words[at.T_LATE_NS] / 1e9,
        "max_late_s": words[at.T_MAX_LATE_NS] / 1e9,
    }


def _known(value: int) -> int | None:
    return None if value == at.NOTHING else value


def _age(then_ns: int, now_ns: int) -> float | None:
    return max(now_ns - then_ns, 0) / 1e9 if then_ns > 0 else None


def _name(names: tuple[str, ...], number: int) -> str:
    return names[number] if 0 <= number < len(names) else names[0]


def _error_text(errno: int) -> str | None:
    if not errno:
        return None
    known = 0 < errno < 4096  # a damaged page may hold anything
    return f"{os.strerror(errno)} (errno {errno})" if known else f"errno {errno}"
