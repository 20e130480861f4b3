"""Tokenised documents on disk: Arrow parts in the layout of `datasets`, and a header of their own.

    DIR/corpus.json       header: provenance, counts, histogram, buckets, parts with their hashes
    DIR/part-00000.arrow  input_ids, loss_mask, seq_len, line
    DIR/part-00000.json   what became of its lines
    DIR/problems.jsonl    file, line and reason of each line left out as bad
    DIR/state.json, dataset_info.json    so that `datasets.load_from_disk(DIR)` opens it

Each file is written under another name and renamed, so a name means a whole file. No time stands in
any, so the same input and options give the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from datasets import Dataset, Features, List, Value, load_from_disk

from dflash_train.corpus.header import HEADER_NAME, read_header
from dflash_train.errors import UsageError

FEATURES = Features(
    {
        "input_ids": List(Value("int32")),
        "loss_mask": List(Value("bool")),
        "seq_len": Value("int32"),
        "line": Value("int64"),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """A whole directory of shards, opened."""

    path: Path
    header: Mapping[str, Any]
    table: Dataset
    lengths: Sequence[int]
    """Tokens of each document."""
    talks: Sequence[int]
    """Of each document the conversation it comes from: those of one stand side by side."""


def part_name(number: int) -> str:
    """Name of a part, without its ending."""
    return f"part-{number:05d}"


def write_whole(file: Path, data: bytes) -> None:
    """`data` under `file`'s name, or nothing: synced, then renamed."""
    part = file.with_name(file.name + ".part")
    with part.open("wb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())
    part.rename(file)


def as_json(value: object) -> bytes:
    """Stable bytes of a record, readable by people."""
    return (json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()


def arrow_bytes(
    input_ids: Sequence[Sequence[int]],
    loss_masks: Sequence[Sequence[bool]],
    lines: Sequence[int],
) -> bytes:
    """One part as an Arrow stream."""
    columns = {
        "input_ids": input_ids,
        "loss_mask": loss_masks,
        "seq_len": [len(ids) for ids in input_ids],
        "line": lines,
    }
    schema = FEATURES.arrow_schema
    table = pa.table({key: pa.array(columns[key], schema.field(key).type) for key in FEATURES})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as stream:
        stream.write_table(table.cast(schema))
    return sink.getvalue().to_pybytes()


def finish(folder: Path, header: Mapping[str, object], parts: Sequence[str]) -> None:
    """Make `folder` one that opens here and in `datasets`; the header comes last."""
    info = {"features": FEATURES.to_dict(), "citation": "", "description": "", "license": ""}
    state: dict[str, object] = {
        "_data_files": [{"filename": name} for name in parts],
        "_fingerprint": str(header["key"])[:16],
        "_format_columns": None,
        "_format_kwargs": {},
        "_format_type": None,
        "_output_all_columns": False,
        "_split": None,
    }
    write_whole(folder / "dataset_info.json", as_json(info))
    write_whole(folder / "state.json", as_json(state))
    write_whole(folder / HEADER_NAME, as_json(header))


def open_corpus(folder: Path, on_bytes: Callable[[int], None] = lambda _: None) -> Corpus:
    """A finished directory whose every part is as it was written.

    Args:
        folder: written by `prepare`.
        on_bytes: called with bytes read, as hashing large data takes a while.

    Raises:
        UsageError: a part is missing, cut short or changed; or see `read_header`.
    """
    header = read_header(folder)
    for entry in header["parts"]:
        _check_part(folder / entry["file"], entry, on_bytes)
    try:
        table = load_from_disk(str(folder)).with_format("numpy")
        lengths = table.data.column("seq_len").to_numpy()
        lines = table.data.column("line").to_numpy()
    except (OSError, pa.ArrowException, KeyError, ValueError) as error:
        raise UsageError(f"--data {folder}: cannot be read: {error}", hint="prepare anew") from None
    return Corpus(
        path=folder,
        header=header,
        table=table,
        lengths=lengths.tolist(),
        talks=np.cumsum(np.diff(lines, prepend=lines[:1]) != 0).tolist(),
    )


def _check_part(
    file: Path, entry: Mapping[str, object], on_bytes: Callable[[int], None] = lambda _: None
) -> None:
    hint = "run the same prepare again: it makes what is missing or changed"
    try:
        size = file.stat().st_size
        if size != entry["bytes"]:
            seen = "cut short" if size < int(str(entry["bytes"])) else "grown"
            raise UsageError(
                f"--data {file}: {seen}: {size} bytes, expected {entry['bytes']}", hint=hint
            )
        if sha256_of(file, on_bytes) != entry["sha256"]:
            raise UsageError(f"--data {file}: other bytes than were written (sha256)", hint=hint)
    except OSError as error:
        raise UsageError(f"--data {file}: {error.strerror}", hint=hint) from None


def sha256_of(file: Path, on_bytes: Callable[[int], None] = lambda _: None) -> str:
    """Hash of a file; `on_bytes` is called with the bytes of each piece."""
    digest = hashlib.sha256()
    with file.open("rb") as source:
        while piece := source.read(1 << 22):
            digest.update(piece)
            on_bytes(len(piece))
    return digest.hexdigest()


def is_part_whole(file: Path, entry: Mapping[str, object]) -> bool:
    """Whether a part is there, as it was written."""
    try:
        _check_part(file, entry)
    except UsageError:
        return False
    return True


def document(corpus: Corpus, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Tokens (int32) and loss mask (bool) of one document."""
    row = corpus.table[number]
    return row["input_ids"], row["loss_mask"]
