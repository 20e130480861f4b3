"""Prepare: from data files to a directory of shards, in parts that are whole or not there.

A part is a function of its lines and of the options, so whoever starts the same again, after a kill
too, gets the same bytes; parts already there are verified and kept.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from typing import Any, Protocol

from dflash_train.corpus import lengths as length_tables
from dflash_train.corpus import shards
from dflash_train.corpus.encode import EncodeOptions, Encoder, tokenizer_hash
from dflash_train.corpus.header import HEADER_NAME, SCHEMA
from dflash_train.corpus.inputs import Input, chunks_of, survey
from dflash_train.corpus.parts import Job, made
from dflash_train.errors import DflashError, UsageError

SHOWN_PROBLEMS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareRequest:
    """What is made of what."""

    inputs: tuple[Path, ...]
    out: Path
    options: EncodeOptions
    workers: int = 1
    part_lines: int = 1000
    """Lines of one part."""
    max_bad: int = 100
    """More bad lines than that end it."""
    devices: tuple[str, ...] = ()
    """Where the target answers, one process each; empty: `workers` processes, no target."""


class Told(Protocol):
    """Who is told while it is made."""

    def lines(self, done: int, total: int) -> None:
        """`done` of `total` lines are prepared."""

    def problem(self, file: str, line: int, reason: str) -> None:
        """One of the first bad lines."""


def prepare(request: PrepareRequest, told: Told) -> dict[str, Any]:
    """Make the directory whole; returns its header.

    Args:
        request: see there.
        told: how far it is, and the first bad lines.

    Raises:
        UsageError: the data, tokenizer, template or directory cannot be used; too many bad lines;
            no document left.
        DflashError: nothing can be written.
    """
    inputs = [survey(path) for path in request.inputs]
    first = Encoder(request.options)
    ways = sorted({str(first.way(one.form, one.first)) for one in inputs})
    made_of = _made_of(request, inputs, first, ways)
    key = _key_of(made_of)
    try:
        with _owned(request.out):
            _begin(request.out, key, made_of)
            notes = _all_parts(request, inputs, key, told)
            header = _whole_header(request, key, made_of, notes)
            shards.write_whole(request.out / "problems.jsonl", _problems(notes))
            shards.finish(request.out, header, [entry["file"] for entry in header["parts"]])
    except OSError as error:
        raise DflashError(
            f"--out {request.out}: {error.strerror or error}",
            hint="what is made is kept: make room, and the same command goes on from here",
        ) from error
    return header


def _made_of(
    request: PrepareRequest, inputs: Sequence[Input], first: Encoder, ways: list[str]
) -> dict[str, Any]:
    """Provenance: all that decides the bytes of the shards."""
    options = asdict(request.options)
    options.pop("tokenizer"), options.pop("chat_template")
    tokenizer = first.tokenizer
    template = tokenizer.chat_template if isinstance(tokenizer.chat_template, str) else None
    return {
        "inputs": [
            {"file": one.path.name, "sha256": one.sha256, "lines": one.num_lines} for one in inputs
        ],
        "tokenizer": {
            "path": request.options.tokenizer,
            "sha256": tokenizer_hash(tokenizer),
            "vocab_size": max(tokenizer.get_vocab().values()) + 1,
            "pad_token_id": tokenizer.pad_token_id,
            "bos_token_id": tokenizer.bos_token_id,
            "stop_token_ids": sorted(first.stop_ids),
        },
        "chat_template": {
            "sha256": template and hashlib.sha256(template.encode()).hexdigest(),
            "options": first.template_options,
            "hears_thinking": first.hears_thinking(),
        },
        "loss_mask": ways,
        "options": {**options, "part_lines": request.part_lines},
    }


def _key_of(made_of: Mapping[str, Any]) -> str:
    """Of what is in the files, wherever the tokenizer lies."""
    tokenizer = {name: value for name, value in made_of["tokenizer"].items() if name != "path"}
    return hashlib.sha256(shards.as_json({**made_of, "tokenizer": tokenizer})).hexdigest()


@contextmanager
def _owned(out: Path) -> Iterator[None]:
    """The directory, made and locked against a second one that prepares.

    Raises:
        UsageError: it cannot be made, or another works in it.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(out, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise UsageError(f"--out {out}: {error.strerror}") from None
    try:
        flock(descriptor, LOCK_EX | LOCK_NB)
        yield
    except BlockingIOError:
        raise UsageError(f"--out {out}: another prepare works in it", hint="wait for it") from None
    finally:
        os.close(descriptor)


def _begin(out: Path, key: str, made_of: Mapping[str, Any]) -> None:
    """Start, or go on with the same; never over anything else.

    Raises:
        UsageError: something else is there.
    """
    file = out / HEADER_NAME
    if not file.exists():
        if any(one for one in out.iterdir() if one.suffix != ".part"):
            raise UsageError(f"--out {out}: not empty", hint="give an empty or a new folder")
        head = {"schema": SCHEMA, "state": "building", "key": key, "made_of": made_of}
        shards.write_whole(file, shards.as_json(head))
        return
    try:
        there = json.loads(file.read_text(encoding="utf-8"))
        differing = [name for name in made_of if there["made_of"].get(name) != made_of[name]]
        is_same = there["key"] == key
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise UsageError(f"--out {file}: cannot be read: {error}") from None
    if not is_same:
        raise UsageError(
            f"--out {out}: prepared with other {', '.join(differing) or 'contents'}",
            hint="give the same as then, or another folder",
        )


def _all_parts(
    request: PrepareRequest, inputs: Sequence[Input], key: str, told: Told
) -> list[dict[str, Any]]:
    """Notes of all parts in order; made where they are not there yet.

    Raises:
        UsageError: more bad lines than allowed.
    """
    total, done, bad = sum(one.num_lines for one in inputs), 0, 0
    notes = []
    told.lines(0, total)
    for note in made(_jobs(request, inputs, key), request.workers, request.devices):
        notes.append(note)
        done += note["counts"]["lines"]
        for line, reason in note["problems"]:
            bad += 1
            if bad <= SHOWN_PROBLEMS:
                told.problem(note["file"], line, reason)
            if bad > request.max_bad:
                raise UsageError(
                    f"--data {note['file']}: more than {request.max_bad} bad lines, at line {line}:"
                    f" {reason}",
                    hint="repair them, or allow more with --max-bad N",
                )
        told.lines(done, total)
    return notes


def _jobs(request: PrepareRequest, inputs: Sequence[Input], key: str) -> Iterator[Job]:
    number = 0
    for one in inputs:
        for start, lines in chunks_of(one.path, request.part_lines):
            yield Job(
                number=number,
                start=start,
                lines=lines,
                file=str(one.path),
                form=one.form,
                folder=request.out,
                options=request.options,
                key=key,
            )
            number += 1


def _whole_header(
    request: PrepareRequest, key: str, made_of: Mapping[str, Any], notes: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """Raises UsageError where no document is left."""
    counts, sizes = Counter[str](), Counter[int]()
    for note in notes:
        counts.update(note["counts"])
        sizes.update({int(length): n for length, n in note["lengths"].items()})
    if not sizes:
        raise _nothing_left(request, counts)
    buckets = length_tables.choose_buckets(sizes)
    return {
        "schema": SCHEMA,
        "state": "whole",
        "key": key,
        "made_of": made_of,
        "counts": dict(sorted(counts.items())),
        "tokens": sum(length * n for length, n in sizes.items()),
        "supervised_tokens": sum(note["supervised"] for note in notes),
        "max_length": max(sizes),
        "largest_token_id": max(note["largest_token_id"] for note in notes),
        "histogram": length_tables.histogram(sizes),
        "buckets": length_tables.bucket_rows(sizes, buckets),
        "parts": [note["entry"] for note in notes if note["entry"]["documents"]],
    }


def _nothing_left(request: PrepareRequest, counts: Counter[str]) -> UsageError:
    options = request.options
    reasons = {
        "bad": "bad lines",
        "unsupervised": "without supervised tokens",
        "short": f"shorter than a block of {options.block_size}",
        "long": f"longer than {options.max_length}",
    }
    seen = ", ".join(f"{counts[key]} {text}" for key, text in reasons.items() if counts[key])
    files = ", ".join(str(path) for path in request.inputs)
    hints = {
        "unsupervised": "each conversation needs an answer of the assistant of two tokens or more",
        "short": "give longer documents or a smaller --block-size",
        "long": "raise --max-length or cut with --long cut",
    }
    main = max(("unsupervised", "short", "long"), key=lambda name: counts[name])
    return UsageError(
        f"--data {files}: no document to learn from in {counts['lines']} lines:"
        f" {seen or 'all empty'}",
        hint=hints[main] if counts[main] else None,
    )


def _problems(notes: Sequence[dict[str, Any]]) -> bytes:
    rows = [
        json.dumps({"file": note["file"], "line": line, "reason": reason}, ensure_ascii=False)
        for note in notes
        for line, reason in note["problems"]
    ]
    return "".join(row + "\n" for row in rows).encode()
