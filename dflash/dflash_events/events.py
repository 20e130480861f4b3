"""One event is one line of JSON: encoding, and a tail that reads them while they are written."""

from __future__ import annotations

import json
import math
import os
from typing import Any, NamedTuple

from dflash_events.schema import SCHEMA, RunDirError

MAX_LINE_BYTES = 256 * 1024
"""A longer line is skipped as garbage; the writer cuts tracebacks far below this."""

_ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"), ensure_ascii=False)
_LOSSLESS = (bool, int, str, type(None))
_GUARD_BYTES = 64


def encode_event(event: dict[str, object]) -> tuple[bytes, list[tuple[str, str]]]:
    """The line of an event, with its line end, and what in it was not finite.

    Returns:
        The line, and (key, value as text) for each number that had to be written as null.
    """
    nonfinite: list[tuple[str, str]] = []
    try:
        line = _bytes(event)
    except (TypeError, ValueError, RecursionError):
        event = {key: _plain(value, key, nonfinite, 0) for key, value in event.items()}
        line = _bytes(event)
    if len(line) > MAX_LINE_BYTES:
        line = _bytes({**{key: _short(value) for key, value in event.items()}, "cut": True})
    return line, nonfinite


def _bytes(event: dict[str, object]) -> bytes:
    return _ENCODER.encode(event).encode("utf-8", "replace") + b"\n"


def _short(value: object) -> object:
    """Something of a few KB at most in place of what is too long for a line."""
    if isinstance(value, str):
        return value[-4096:]
    if isinstance(value, int):
        return value if value.bit_length() < 64 else None
    return value if value is None or isinstance(value, float) else f"<{type(value).__name__}>"


def plain(value: object) -> object:
    """A value as strict JSON can hold it: numbers that are not finite become null."""
    return _plain(value, "", [], 0)


def _plain(value: object, key: str, nonfinite: list[tuple[str, str]], depth: int) -> object:
    if isinstance(value, float):
        if math.isfinite(value):
            return float(value)
        nonfinite.append((key, str(float(value))))
        return None
    if isinstance(value, _LOSSLESS):
        return value
    if depth >= 16:
        return f"<{type(value).__name__}, nested too deep>"
    if isinstance(value, dict):
        return {
            str(name): _plain(inner, f"{key}.{name}" if key else str(name), nonfinite, depth + 1)
            for name, inner in value.items()
        }
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(inner, key, nonfinite, depth + 1) for inner in value]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return _scalar(value, key, nonfinite, depth)


def _scalar(value: object, key: str, nonfinite: list[tuple[str, str]], depth: int) -> object:
    """A numpy scalar or a one-element array in host memory as its number; else the type's name.

    A tensor on a device is never asked for its value: that would wait for the device.
    """
    item = getattr(value, "item", None)
    in_host_memory = str(getattr(value, "device", "cpu")) == "cpu"
    if callable(item) and in_host_memory:
        try:
            return _plain(item(), key, nonfinite, depth + 1)
        except (TypeError, ValueError, RuntimeError):
            return f"<{type(value).__name__}>"
    return f"<{type(value).__name__}>"


def parse_event(line: bytes) -> dict[str, Any] | None:
    """The event of a line, or None where the line is none."""
    try:
        event = json.loads(line, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        return None
    if not isinstance(event, dict) or not isinstance(event.get("kind"), str):
        return None
    return event


class TailRead(NamedTuple):
    """What one look at the file brought."""

    events: list[dict[str, Any]]
    garbage: int
    """Lines that were no events, skipped."""
    more: bool
    """The limit of this call was reached; call again."""
    note: str | None
    """`truncated`, `replaced`, or a newer schema: what a person should know, once."""


class EventTail:
    """Reads events.jsonl while it grows; keeps its place between calls.

    A last line without its end waits. A file that shrank, was overwritten or replaced is read from
    its beginning. Never reads more than asked for, never raises for what stands in the file.

    Args:
        path: the file; it need not exist yet.
        last_bytes: begin this far before the end on the first look; None begins at the beginning.
    """

    def __init__(self, path: str | os.PathLike[str], *, last_bytes: int | None = None) -> None:
        self.path = os.fspath(path)
        self._last_bytes = last_bytes
        self._fd: int | None = None
        self._offset = 0
        self._guard = b""
        self._torn = b""
        self._skipping = False
        self._newer_seen = False

    def __enter__(self) -> EventTail:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def offset(self) -> int:
        """Bytes of the current file that were read, a torn last line included."""
        return self._offset

    def close(self) -> None:
        """Give the descriptor back; the place in the file is forgotten."""
        if self._fd is not None:
            os.close(self._fd)
        self._fd = None
        self._begin_at(0)

    def read(self, max_bytes: int = 1024 * 1024) -> TailRead:
        """Whole lines out of the next `max_bytes` bytes; a torn last one waits for its end.

        Raises:
            RunDirError: the file is not there or may not be read.
        """
        fd, note = self._fd, None
        if fd is None:
            fd = self._open()
        elif self._was_replaced(fd):
            rest = self._take(fd, max_bytes)
            if rest.events or rest.garbage or rest.more:
                return rest
            self.close()
            self._last_bytes = None
            fd = self._open()
            note = f"{os.path.basename(self.path)} was replaced; read from its beginning"
        result = self._take(fd, max_bytes)
        return result._replace(note=note or result.note)

    def _open(self) -> int:
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            raise RunDirError(f"{self.path}: {error.strerror or error}") from error
        self._fd = fd
        size = os.fstat(fd).st_size
        if self._last_bytes is not None and size > self._last_bytes:
            # One byte more: if it ends a line, the first whole line is not lost with it.
            self._begin_at(size - self._last_bytes - 1)
            self._skipping = True
        return fd

    def _begin_at(self, offset: int) -> None:
        self._offset, self._guard, self._torn, self._skipping = offset, b"", b"", False

    def _was_replaced(self, fd: int) -> bool:
        """The path names another file now. A path that names none keeps the old one readable."""
        try:
            now = os.stat(self.path)
        except OSError:
            return False
        ours = os.fstat(fd)
        return (now.st_ino, now.st_dev) != (ours.st_ino, ours.st_dev)

    def _take(self, fd: int, max_bytes: int) -> TailRead:
        data, note = self._new_bytes(fd, max(max_bytes, 1))
        *lines, self._torn = (self._torn + data).split(b"\n")
        if self._skipping and lines:
            del lines[0]
            self._skipping = False
        events: list[dict[str, Any]] = []
        garbage = 0
        for line in lines:
            event = parse_event(line) if len(line) <= MAX_LINE_BYTES else None
            if event is not None:
                events.append(event)
                note = note or self._newer(event)
            elif line.strip():
                garbage += 1
        if len(self._torn) > MAX_LINE_BYTES:
            garbage += 0 if self._skipping else 1
            self._torn, self._skipping = b"", True
        return TailRead(events, garbage, len(data) >= max_bytes, note)

    def _new_bytes(self, fd: int, max_bytes: int) -> tuple[bytes, str | None]:
        """Bytes after the offset; starts over where what stood before it is not there any more."""
        guard, note = len(self._guard), None
        try:
            data = os.pread(fd, guard + max_bytes, self._offset - guard)
            if data[:guard] == self._guard:
                data = data[guard:]
            else:
                self._begin_at(0)
                name = os.path.basename(self.path)
                note = f"{name} was truncated or overwritten; read from its beginning"
                data = os.pread(fd, max_bytes, 0)
        except OSError as error:
            raise RunDirError(f"{self.path}: {error.strerror or error}") from error
        self._offset += len(data)
        self._guard = (self._guard + data)[-_GUARD_BYTES:]
        return data, note

    def _newer(self, event: dict[str, Any]) -> str | None:
        version = event.get("v")
        if self._newer_seen or not isinstance(version, int) or version <= SCHEMA:
            return None
        self._newer_seen = True
        return f"events of schema {version}; this reader knows {SCHEMA} and takes what it knows"
