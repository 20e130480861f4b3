"""Parts of prepared data, each whole on disk with its note, or not there; made by processes."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import signal
import threading
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import connection
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import Any

from dflash_train.corpus import shards
from dflash_train.corpus.chat import Form
from dflash_train.corpus.encode import EncodeOptions, Part, encoder
from dflash_train.errors import DflashError


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One part, for a worker process."""

    number: int
    start: int
    lines: Sequence[bytes]
    file: str
    form: Form
    folder: Path
    options: EncodeOptions
    key: str


def made(
    jobs: Iterator[Job], workers: int, devices: tuple[str, ...] = ()
) -> Iterator[dict[str, Any]]:
    """Notes in the order of `jobs`, made by as many processes as asked for.

    Args:
        jobs: taken a little ahead.
        workers: processes; 1 works in this one.
        devices: where the target answers, one process each; they decide how many.

    Raises:
        DflashError: a process was killed.
    """
    workers = len(devices) or workers
    if workers == 1:
        _use_device(*devices)
        yield from map(make_part, jobs)
        return
    context = multiprocessing.get_context("forkserver")
    answering = ["dflash_train.corpus.answers"] if devices else []
    context.set_forkserver_preload([__name__, *answering])
    free = context.SimpleQueue()
    for device in devices:
        free.put(device)
    pool = ProcessPoolExecutor(
        workers, mp_context=context, initializer=_begin_worker, initargs=(free,)
    )
    waiting: deque[Future[dict[str, Any]]] = deque()
    try:
        for job in jobs:
            waiting.append(pool.submit(make_part, job))
            if len(waiting) > 2 * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool:
        raise DflashError(
            "a process that prepares was killed (out of memory?)",
            hint="run the same again, with fewer --workers",
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _begin_worker(free: SimpleQueue[str]) -> None:
    """A worker ends with whoever started it, leaves Ctrl-C to it, and takes a device for itself."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if not free.empty():
        _use_device(free.get())
    parent = multiprocessing.parent_process()

    def follow() -> None:
        if parent is not None:
            connection.wait([parent.sentinel])
            os._exit(1)

    threading.Thread(target=follow, name="parent-watch", daemon=True).start()


def make_part(job: Job) -> dict[str, Any]:
    """The note of a part; the part itself is on disk."""
    name = shards.part_name(job.number)
    note_file, arrow = job.folder / f"{name}.json", job.folder / f"{name}.arrow"
    known = _known_note(note_file, job.key)
    if known is not None and shards.is_part_whole(arrow, known["entry"]):
        return known
    part = _part(job, job.folder / f"{name}.answers.jsonl")
    data = shards.arrow_bytes(
        [one.input_ids for one in part.documents],
        [one.is_supervised for one in part.documents],
        part.lines,
    )
    shards.write_whole(arrow, data)
    note = _note(job, part, arrow.name, data)
    shards.write_whole(note_file, shards.as_json(note))
    return note


def _part(job: Job, journal: Path) -> Part:
    lines, one, answers = enumerate(job.lines, job.start), encoder(job.options), job.options.answers
    if answers is None:
        return one.part(lines, job.form)
    from dflash_train.corpus.answers import Journal, answered_part  # noqa: PLC0415  (torch)
    from dflash_train.corpus.generate import answerer  # noqa: PLC0415

    target = answerer(job.options.tokenizer, answers, _DEVICE[0], one.stop_ids)
    limit = job.options.max_length
    return answered_part(one, lines, job.form, target, Journal(journal), answers, limit)


_DEVICE: list[str] = []


def _use_device(*devices: str) -> None:
    """Where the target of this process answers."""
    _DEVICE[:] = devices


def _known_note(file: Path, key: str) -> dict[str, Any] | None:
    try:
        note = json.loads(file.read_text(encoding="utf-8"))
        return note if note["key"] == key else None
    except (OSError, ValueError, KeyError, TypeError):
        return None  # not there, or damaged: made again


def _note(job: Job, part: Part, name: str, data: bytes) -> dict[str, Any]:
    sizes = Counter(len(one.input_ids) for one in part.documents)
    return {
        "key": job.key,
        "file": job.file,
        "counts": dict(sorted(part.counts.items())),
        "problems": part.problems,
        "lengths": {str(length): sizes[length] for length in sorted(sizes)},
        "largest_token_id": max((max(one.input_ids) for one in part.documents), default=0),
        "supervised": sum(sum(one.is_supervised) for one in part.documents),
        "entry": {
            "file": name,
            "documents": len(part.documents),
            "bytes": len(data),
            "sha256": hashlib.sha256(data).hexdigest(),
        },
    }
