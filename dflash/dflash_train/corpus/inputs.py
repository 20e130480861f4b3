"""Data files as numbered lines: text, gzip or Parquet rows. The only place that opens them."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO, cast

import pyarrow as pa
from pyarrow.parquet import ParquetFile

from dflash_train.corpus.chat import Form
from dflash_train.errors import UsageError

_FORMS = {
    ".jsonl": Form.JSON_LINES,
    ".ndjson": Form.JSON_LINES,
    ".json": Form.JSON_LINES,
    ".txt": Form.TEXT_LINES,
    ".parquet": Form.JSON_LINES,
}
_ROWS_AT_A_TIME = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """A data file, read once."""

    path: Path
    form: Form
    sha256: str
    """Of what is in it, unpacked."""
    num_lines: int
    first: bytes
    """Its first line that is not empty."""


def survey(path: Path) -> Input:
    """Read a file through: its form, hash, lines.

    Raises:
        UsageError: not there, not readable, empty, or of a form that is not known.
    """
    if not path.exists():
        raise UsageError(
            f"--data {path}: No such file or directory",
            hint="expected a file of chats or text, or a folder that prepare wrote",
        )
    form = form_of(path)
    digest, count, first = hashlib.sha256(), 0, b""
    for line in lines_of(path):
        digest.update(line)
        count += 1
        first = first or line.strip()
    if not first:
        raise UsageError(f"--data {path}: nothing in it, expected one conversation or text a line")
    if form is Form.JSON_LINES and first[:1] == b"[":
        raise UsageError(
            f"--data {path}: a JSON array, expected one object a line",
            hint=f"jq -c '.[]' {path} > {path.with_suffix('.jsonl').name}",
        )
    return Input(path=path, form=form, sha256=digest.hexdigest(), num_lines=count, first=first)


def form_of(path: Path) -> Form:
    """By the ending of the name.

    Raises:
        UsageError: another ending.
    """
    name = path.with_suffix("") if path.suffix == ".gz" else path
    if name.suffix not in _FORMS:
        raise UsageError(
            f"--data {path}: ends in {name.suffix or 'nothing'!r}, expected"
            f" {', '.join(_FORMS)}, or one of these with .gz"
        )
    return _FORMS[name.suffix]


def lines_of(path: Path) -> Iterator[bytes]:
    """Lines as they stand there, ends included; a Parquet row as the JSON line it would be.

    Raises:
        UsageError: cannot be read, or a gzip file that is damaged or cut short.
    """
    try:
        if path.suffix == ".parquet":
            yield from _rows(path)
            return
        with _opened(path) as source:
            yield from source
    except (OSError, EOFError, zlib.error, pa.ArrowException) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"--data {path}: {reason}") from None


def chunks_of(path: Path, size: int) -> Iterator[tuple[int, Sequence[bytes]]]:
    """(number of the first line, `size` lines), to the end of the file."""
    lines, start = lines_of(path), 1
    while chunk := list(islice(lines, size)):
        yield start, chunk
        start += len(chunk)


def _rows(path: Path) -> Iterator[bytes]:
    """Raises OSError where there is no file, ArrowException where it is none of Parquet."""
    for batch in ParquetFile(path).iter_batches(_ROWS_AT_A_TIME):
        for row in batch.to_pylist():
            yield json.dumps(row, ensure_ascii=False, default=str).encode() + b"\n"


def _opened(path: Path) -> BinaryIO:
    if path.suffix == ".gz":
        return io.BufferedReader(cast("io.RawIOBase", gzip.open(path)), 1 << 20)
    return path.open("rb", buffering=1 << 20)
