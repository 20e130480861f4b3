"""The one thread that writes files of the run directory, and what it does when it cannot."""

from __future__ import annotations

import errno
import itertools
import os
import queue
import stat
import threading
import time
from pathlib import Path
from typing import Callable, NamedTuple

from dflash_events.beats import BeatPage
from dflash_events.ticker import set_thread_comm

_RETRY_S = (0.5, 1.0, 2.0, 5.0)


class EventFile:
    """Appends lines, one write() each, to the file that `path` names *now*."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd: int | None = None
        self._torn = False

    def append(self, line: bytes) -> None:
        """Write one line.

        Raises:
            OSError: it is not in the file; a piece of it may be, and is closed off by the next.
        """
        fd = self.open()
        whole = b"\n" + line if self._torn else line
        written = os.write(fd, whole)
        if written == len(whole):
            self._torn = False
            return
        self._torn = True
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))

    def open(self) -> int:
        """The descriptor; opened anew when the path does not name that file any more.

        Raises:
            OSError: it cannot be opened.
        """
        if self._fd is not None:
            ours = os.fstat(self._fd)
            try:
                named = self.path.stat()
            except FileNotFoundError:
                named = None
            if named is not None and (named.st_ino, named.st_dev) == (ours.st_ino, ours.st_dev):
                return self._fd
            self.close()
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._fd = os.open(self.path, flags, 0o644)
        return self._fd

    def close(self) -> None:
        """Give the descriptor back."""
        if self._fd is not None:
            os.close(self._fd)
        self._fd = None


def set_aside(path: Path) -> Path | None:
    """Give the events of an earlier run another name: `events-1.jsonl` is the oldest.

    A reader of this run must not meet the `exit` of the last one. Returns the new name.

    Raises:
        OSError: it could not be renamed.
    """
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode) or not found.st_size:
        return None
    names = (path.with_name(f"{path.stem}-{n}{path.suffix}") for n in itertools.count(1))
    free = next(name for name in names if not name.exists())
    return path.rename(free)


class Chores(NamedTuple):
    """What the writer thread does beside events; each may fail with OSError, each is retried."""

    write_manifest: Callable[[], None]
    heartbeat: Callable[[], bytes | None]
    leave: Callable[[], None]
    """Last act: keep the final page in the run directory, take it out of shared memory."""


class Sink:
    """A bounded queue of lines and the daemon thread that writes them.

    `put` never waits. A line that cannot be written is tried again with growing pauses while the
    queue fills behind it; what finds no room is counted in the beat page, as is each failure.
    """

    def __init__(
        self, path: Path, page: BeatPage, chores: Chores, *, room: int = 2048, every_s: float = 5.0
    ) -> None:
        self._file, self._page, self._chores = EventFile(path), page, chores
        self._room, self._every_s = room, every_s
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._manifest_due = False  # no Event: setting one twice in one thread may wait for ever
        self._closing = threading.Event()
        self.first_look = threading.Event()
        """Set once the manifest was tried for the first time, with or without success."""
        self._thread = threading.Thread(target=self._run, name="dflash-events", daemon=True)

    def start(self) -> None:
        """Begin; lines put before are written first."""
        self._manifest_due = True
        self._thread.start()

    def put(self, line: bytes, *, periodic: bool) -> bool:
        """Hand a line over; False where there was no room. The last quarter is kept for edges."""
        room = self._room * 3 // 4 if periodic else self._room
        if self._lines.qsize() >= room:
            self._page.count_dropped()
            return False
        self._lines.put(line)
        return True

    def manifest_changed(self) -> None:
        """Write run.json soon."""
        if not self._manifest_due:
            self._manifest_due = True
            self._lines.put(None)

    def close(self, wait_s: float) -> bool:
        """Write what is there and end; True when that was done within `wait_s`."""
        self._closing.set()
        self._lines.put(None)
        self._thread.join(wait_s)
        if self._thread.is_alive():
            self._page.count_dropped(self._lines.qsize())
            return False
        return True

    def _run(self) -> None:
        set_thread_comm("dflash-events")
        self._manifest()
        self.first_look.set()
        self._attempt(self._file.open)  # whoever looks for the run finds it by this descriptor
        next_beat = time.monotonic() + self._every_s
        while not (self._closing.is_set() and self._lines.empty()):
            self._manifest()
            try:
                line = self._lines.get(timeout=max(next_beat - time.monotonic(), 0.0))
            except queue.Empty:
                line = self._chores.heartbeat()
                next_beat = time.monotonic() + self._every_s
            if line is not None:
                self._write(line)
        self._manifest()
        self._attempt(self._chores.leave)
        self._file.close()

    def _write(self, line: bytes) -> None:
        """Until it is written; once more and then never again while closing."""
        pauses = itertools.chain(_RETRY_S, itertools.repeat(_RETRY_S[-1]))
        while not self._attempt(lambda: self._file.append(line)):
            if self._closing.is_set():
                self._page.count_dropped()
                return
            self._closing.wait(next(pauses))
            self._manifest()

    def _manifest(self) -> None:
        if self._manifest_due:
            self._manifest_due = False
            if not self._attempt(self._chores.write_manifest):
                self._manifest_due = True

    def _attempt(self, act: Callable[[], object]) -> bool:
        try:
            act()
        except OSError as error:
            self._page.count_write_error(error.errno or errno.EIO)
            return False
        return True
