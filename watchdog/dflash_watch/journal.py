"""What was done, to which machine, when, and what came of it: one JSON object a line.

Everything that this program does to a watched machine or for a person stands here: connections,
agents, programs sent, stack samples, hooks, incident folders, and what was not done and why.
Written in a thread of its own, for its owner only, masked, and kept to a size by turning it over;
several watchers may write into one file. A disk that takes nothing costs lines, which are counted.
"""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from dflash_events.secrets import mask_tree

from dflash_watch.clock import Clock
from dflash_watch.outlet import Outlet
from dflash_watch.private import make_folder, open_private, open_regular
from dflash_watch.readers.lines import escaped

NAME = "journal.jsonl"
LIMIT_BYTES = 4 << 20
"""Beyond it the file is kept once more as `journal.1.jsonl` and begun anew."""
LINES_THAT_MAY_WAIT = 512
LONGEST_LINE = 64 << 10
logger = logging.getLogger(__name__)


class Note(Protocol):
    """How something that was done is noted."""

    def __call__(self, action: str, outcome: str, /, **details: object) -> None:
        """What was done, what came of it, and the particulars; never blocks, never raises."""


def note_nothing(action: str, outcome: str, /, **details: object) -> None:
    """Where nobody keeps a journal."""
    del action, outcome, details


class JournalFile:
    """The file behind any number of journals.

    Args:
        path: of the file; its folder is made when needed.
        limit_bytes: of the file and of the one kept before it, each.
    """

    def __init__(self, path: Path, *, limit_bytes: int = LIMIT_BYTES) -> None:
        self.path, self._limit_bytes = path, limit_bytes
        self._lost = self._dropped = 0
        self._is_torn = self._is_refused = False
        self._outlet: Outlet[dict[str, Any]] = Outlet(
            "journal", self._write, capacity=LINES_THAT_MAY_WAIT
        )

    def put(self, entry: dict[str, Any]) -> None:
        """Queue one line."""
        self._outlet.put(entry)

    def close(self, timeout_s: float) -> bool:
        """Let the last lines out; True when all of them were handed to the disk or counted."""
        return self._outlet.close(timeout_s)

    def _write(self, entry: dict[str, Any]) -> None:
        dropped = self._outlet.dropped
        lost = self._lost + dropped - self._dropped
        text = _line(entry)
        if lost:
            told = {"action": "journal", "outcome": "lines lost", "lines": lost}
            text = _line({"t": entry.get("t"), **told}) + text
        try:
            self._append(text.encode())
        except OSError as error:
            self._lost += 1
            if not self._is_refused:
                logger.warning("journal %s: %s; actions are not noted", self.path, error.strerror)
            self._is_refused = True
            return
        if lost:
            logger.warning("journal %s: written again, %d lines lost", self.path, lost)
        self._lost, self._dropped, self._is_refused = 0, dropped, False

    def _append(self, data: bytes) -> None:
        descriptor = _open(self.path)
        try:
            if self._is_full(descriptor, len(data)):
                self.path.replace(older(self.path))
                os.close(descriptor)
                descriptor = -1
                descriptor = _open(self.path)
            head = b"\n" if self._is_torn else b""
            written = os.write(descriptor, head + data)
            self._is_torn = written < len(head + data) and written > 0
            if written < len(head + data):
                raise OSError(errno.ENOSPC, "No space left on device")
        finally:
            if descriptor >= 0:
                os.close(descriptor)

    def _is_full(self, descriptor: int, more: int) -> bool:
        """It is time to turn over, and no other watcher is doing it or has done it."""
        if os.fstat(descriptor).st_size + more <= self._limit_bytes:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return os.path.samestat(os.fstat(descriptor), self.path.stat())
        except OSError:  # another one holds it, or has just renamed it
            return False


class Journal:
    """The journal of one watched run.

    Args:
        file: where it goes; None keeps none.
        clock: this machine's.
        host: the way to the run, as drawn.
        run: its name, where several runs are watched by one process.
    """

    def __init__(
        self, file: JournalFile | None, clock: Clock, host: str, run: str | None = None
    ) -> None:
        self._file, self._clock, self._host = file, clock, host
        self._run = {} if run is None else {"run": run}

    def __call__(self, action: str, outcome: str, /, **details: object) -> None:
        """Note what was done and what came of it, with the moment, the host and who did it."""
        if self._file is None:
            return
        who = {"t": round(self._clock.wall_s(), 3), "watcher_pid": os.getpid()}
        told = {key: value for key, value in details.items() if value is not None}
        entry = {**who, "host": self._host, **self._run, "action": action, "outcome": outcome}
        self._file.put({**entry, **told})

    @property
    def path(self) -> Path | None:
        """Where it lies."""
        return None if self._file is None else self._file.path


def older(path: Path) -> Path:
    """Where the lines before those of `path` are."""
    return path.with_name(f"{path.stem}.1{path.suffix}")


def read_journal(path: Path) -> Iterator[dict[str, Any]]:
    """All entries that are kept, oldest first; what is torn is passed over.

    Raises:
        OSError: it is there and cannot be read.
    """
    for one in (older(path), path):
        if not one.exists():
            continue
        with open_regular(one) as file:
            while line := file.readline(LONGEST_LINE):
                try:
                    entry = json.loads(line)
                except (ValueError, RecursionError):
                    continue
                if isinstance(entry, dict):
                    yield entry


def _line(entry: dict[str, Any]) -> str:
    return escaped(json.dumps(mask_tree(entry), ensure_ascii=False, default=str)) + "\n"


def _open(path: Path) -> int:
    """The file for appending, for its owner only, never waiting for a pipe that nobody reads."""
    make_folder(path.parent)
    return open_private(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
