"""Recordings: every record of a watch, one JSON object a line, and reading them back.

A file is a header and records, flushed a record, so that a killed watchdog loses nothing. A plain
file is appended to, so that a restarted watchdog goes on in it; a name that ends in `.gz` is
compressed and written once, since nothing can follow a compressed stream that was cut.
"""

from __future__ import annotations

import gzip
import os
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

from dflash_watch.errors import CaptureError, UsageError
from dflash_watch.frame import (
    CaptureHeader,
    Record,
    kind_not_known,
    parse_record,
    render_record,
)
from dflash_watch.model import RunOptions
from dflash_watch.private import open_private
from dflash_watch.readers.lines import escaped

SCHEMA = 1
LINE_BYTES = 64 << 20
"""No record is longer; a longer line is not a recording."""
INCIDENT_WINDOW = "window.jsonl.gz"
_GZIP = b"\x1f\x8b"


class CaptureWriter:
    """Appends records to a file that only its owner can read.

    Args:
        path: file; `.gz` compresses.
        options: what the person said about the run, kept in the header.
        t: moment of the start, wall clock, seconds.
        version: of this program.

    Raises:
        UsageError: the file cannot be opened.
    """

    def __init__(self, path: Path, options: RunOptions, t: float, version: str = "") -> None:
        packed = path.name.endswith(".gz")
        try:
            raw = _open_private(path)
            is_torn = _is_torn(raw)
        except OSError as error:
            raise UsageError(
                f"{path}: cannot be written: {error.strerror}", hint="name another file"
            ) from error
        if packed and raw.tell() > 0:
            raw.close()
            raise UsageError(
                f"{path}: exists already", hint="name another file, or one without .gz"
            )
        self._raw = raw
        self._file: BinaryIO | gzip.GzipFile
        header = CaptureHeader(schema=SCHEMA, t=t, options=options, version=version)
        try:
            self._file = gzip.GzipFile(fileobj=raw, mode="ab", mtime=0) if packed else raw
            if is_torn:
                self._file.write(b"\n")
            self._put(render_record(header))
        except OSError as error:
            raw.close()
            raise UsageError(
                f"{path}: cannot be written: {error.strerror}", hint="name another file"
            ) from error

    def write(self, record: Record) -> None:
        """Append one record; it is on its way to disk when this returns.

        Raises:
            OSError: the disk is full, or the file is gone.
        """
        self._put(render_record(record))

    def close(self) -> None:
        """End the file."""
        self._file.close()
        self._raw.close()

    def _put(self, line: bytes) -> None:
        if not line.isascii() or b"\x7f" in line:  # a terminal shall survive a look at the file
            line = escaped(line.decode()).encode()
        self._file.write(line + b"\n")
        self._file.flush()


class CaptureRecords:
    """Records of a recording, in order.

    Attributes:
        notes: what was tolerated, known when the last record was taken: a torn end, a newer
            schema, kinds of records that only a newer version knows.
    """

    def __init__(self, name: str, lines: Iterator[tuple[int, bytes]]) -> None:
        self.notes: list[str] = []
        self._name, self._lines = name, lines
        self._held: tuple[int, CaptureError] | None = None
        self._count = 0
        self._passed_over: Counter[str] = Counter()

    def __iter__(self) -> CaptureRecords:
        return self

    def __next__(self) -> Record:
        """The next record.

        Raises:
            CaptureError: a line in the middle is not a record.
        """
        while True:
            try:
                number, line = next(self._lines)
            except StopIteration:
                self._end()
                raise
            except (EOFError, zlib.error, gzip.BadGzipFile, OSError) as error:
                self._cut(f"the file is cut or damaged after {self._count} records ({error})")
                raise StopIteration from None
            record = self._parse(number, line)
            if isinstance(record, CaptureHeader):
                if self._held is not None:
                    self.notes.append(
                        f"{self._name}: line {self._held[0]} is torn, a restart follows"
                    )
                    self._held = None
            elif record is not None:
                self._count += 1
                return record

    def _parse(self, number: int, line: bytes) -> Record | CaptureHeader | None:
        if not line.strip():
            return None
        try:
            record = parse_record(line)
        except CaptureError as error:
            kind = kind_not_known(line)
            if kind is not None:
                self._passed_over[kind] += 1
                return None
            if self._held is None:
                # Torn if it is the last line, or a restarted recorder's header follows.
                self._held = (number, error)
                return None
            raise self._broken() from error
        if self._held is not None and not isinstance(record, CaptureHeader):
            raise self._broken()
        return record

    def _broken(self) -> CaptureError:
        number, error = self._held if self._held is not None else (0, CaptureError("nothing read"))
        return CaptureError(
            f"{self._name}: line {number} is {error.message}",
            hint="the file is damaged there; cut it before that line to play the rest",
        )

    def _end(self) -> None:
        if self._held is not None:
            self._cut(f"the last record (line {self._held[0]}) is cut")
            self._held = None
        for kind, count in self._passed_over.items():
            text = f"{count} records of kind {kind[:40]!r} are of a newer version: passed over"
            self.notes.append(f"{self._name}: {text}")

    def _cut(self, what: str) -> None:
        self.notes.append(f"{self._name}: {what}; what stands before it is played")


def open_capture(path: str | Path) -> tuple[CaptureHeader, CaptureRecords]:
    """Header and records of a recording, or of the window of an incident folder.

    Raises:
        CaptureError: no such file, not a recording, or cut before its first record.
    """
    file = Path(path)
    if file.is_dir():
        file = file / INCIDENT_WINDOW
        if not file.exists():
            raise CaptureError(
                f"{path}: a folder without {INCIDENT_WINDOW}, so no incident",
                hint="name a recording, or one folder that dflash-watch incidents lists",
            )
    name = str(path)
    lines = _lines(name, file)
    try:
        _, first = next(lines)
    except StopIteration:
        raise CaptureError(f"{name}: empty", hint="was the disk full?") from None
    except (EOFError, zlib.error, OSError) as error:
        raise CaptureError(f"{name}: cut before its first record ({error})") from error
    header = _header(name, first)
    records = CaptureRecords(name, lines)
    if header.schema > SCHEMA:
        records.notes.append(
            f"{name}: written by a newer version (schema {header.schema}, known {SCHEMA})"
        )
    return header, records


def _header(name: str, line: bytes) -> CaptureHeader:
    try:
        header = parse_record(line)
    except CaptureError as error:
        shown = line[:60].decode("utf-8", "replace").strip()
        what = (
            "is cut in its header" if line.startswith(b'{"type":"capture"') else "is no recording"
        )
        raise CaptureError(
            f"{name}: {what}: it starts with {shown!r}",
            hint="make one with dflash-watch --record FILE",
        ) from error
    if not isinstance(header, CaptureHeader):
        raise CaptureError(
            f"{name}: starts with a {type(header).__name__.lower()}, expected the header",
            hint="its beginning was cut off",
        )
    return header


def _lines(name: str, file: Path) -> Iterator[tuple[int, bytes]]:
    """Numbered lines; a first line is read even of a file without an end of line."""
    try:
        with file.open("rb") as raw:
            packed = raw.read(2) == _GZIP
            raw.seek(0)
            source = gzip.GzipFile(fileobj=raw) if packed else raw
            number = 0
            while line := source.readline(LINE_BYTES):
                number += 1
                yield number, line
    except (FileNotFoundError, PermissionError, IsADirectoryError) as error:
        raise CaptureError(f"{name}: {error.strerror}", hint="check the path") from error


def _open_private(path: Path) -> BinaryIO:
    descriptor = open_private(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, any_kind=True)
    return cast("BinaryIO", os.fdopen(descriptor, "r+b", buffering=0))


def _is_torn(raw: BinaryIO) -> bool:
    """The file has content that does not end in a line end; leaves the position at its end."""
    if raw.seek(0, os.SEEK_END) == 0:
        return False
    raw.seek(-1, os.SEEK_END)
    return raw.read(1) != b"\n"
