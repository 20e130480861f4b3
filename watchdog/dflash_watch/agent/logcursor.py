"""New bytes of one log since the last look, whatever was done to the file in between.

May block on a dead network mount: there it runs in a child (files.py).
"""

from __future__ import annotations

import os
from typing import Any, Dict, Optional, Tuple

CHUNK_BYTES = 65536
FIRST_BYTES = 65536
FIRST_BYTES_OF_OTHERS = 16384


class Cursor:
    """How far one file has been read.

    `head` is its first byte: when that turns into NUL the file was copied and truncated under a
    writer without O_APPEND, whose next write leaves a hole in front.
    """

    def __init__(self, offset: Optional[int] = None, head: Optional[int] = None) -> None:
        self.offset = offset
        self.head = head

    def read(self, descriptor: int, size: int, first_bytes: int) -> Dict[str, Any]:
        """New text and what happened: the keys of `frame.LogSample` from `offset` on.

        Args:
            descriptor: the file, open for reading.
            size: its size now, bytes.
            first_bytes: how much of the end to take when it is read for the first time.
        """
        head = _first_byte(descriptor)
        truncated = self.offset is not None and (
            size < self.offset or (head == 0 and self.head not in (0, None))
        )
        self.head = head
        skipped = 0
        if self.offset is None:
            start = max(0, size - first_bytes)
        elif truncated and size < self.offset:
            start = 0
        else:
            start = self.offset
        if size - start > CHUNK_BYTES:
            skipped = size - CHUNK_BYTES - start
            start = size - CHUNK_BYTES
        start = _after_hole(descriptor, start, size) if head == 0 else start
        data = (
            os.pread(descriptor, max(0, min(size - start, CHUNK_BYTES)), start)
            if size > start
            else b""
        )
        stripped = data.lstrip(b"\0")
        start += len(data) - len(stripped)
        data = _without_torn_end(stripped)
        self.offset = start + len(data)
        return {
            "offset": start,
            "text": data.decode("utf-8", "replace"),
            "text_bytes": len(data),
            "skipped_bytes": skipped,
            "truncated": truncated,
            "newlines": data.count(b"\n"),
            "carriage_returns": data.count(b"\r") - data.count(b"\r\n"),
        }


def _first_byte(descriptor: int) -> Optional[int]:
    data = os.pread(descriptor, 1, 0)
    return data[0] if data else None


def _after_hole(descriptor: int, start: int, size: int) -> int:
    """The next byte that was really written, at or after `start`."""
    try:
        return min(os.lseek(descriptor, start, os.SEEK_DATA), size)
    except OSError:
        return start


def _without_torn_end(data: bytes) -> bytes:
    """Without the beginning of a character whose rest has not been written yet."""
    for back in range(1, min(4, len(data) + 1)):
        byte = data[-back]
        if byte < 0x80:
            return data
        if byte >= 0xC0:
            needed = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return data[:-back] if needed > back else data
    return data


def path_state(
    watched: Optional[str], there: Optional[os.stat_result], link: str, *, deleted: bool
) -> str:
    """Is the watched path the file that is written: `frame.LogSample.path_state`."""
    if watched is None or there is None:
        return "deleted" if deleted else "same"
    try:
        at_path = os.stat(watched)
    except OSError:
        if deleted:
            return "deleted"
        return "moved" if os.path.realpath(watched) != link else "missing"
    same = (at_path.st_dev, at_path.st_ino) == (there.st_dev, there.st_ino)
    return "same" if same else "other-file"


def open_source(root: str, pid: Optional[int], fd: Optional[int], path: str) -> Tuple[int, bool]:
    """A descriptor for reading, and whether it was reached through the process.

    Through `/proc/PID/fd/N` it works for deleted and renamed files and in other mount namespaces.

    Raises:
        OSError: neither way works.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
    if pid is not None and fd is not None:
        try:
            return os.open(f"{root}/{pid}/fd/{fd}", flags), True
        except OSError:
            pass
    return os.open(path, flags), False
