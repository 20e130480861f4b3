"""The beat page: written without a lock by the run, read from outside without disturbing it."""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import threading
import time
from pathlib import Path
from typing import Iterator

from dflash_events import layout as at
from dflash_events.beat_reader import page_identity
from dflash_events.identity import Identity, is_alive
from dflash_events.schema import STATES

SHM = Path("/dev/shm")  # noqa: S108 - shared memory is the point; the name in it is our identity
PREFIX = "dflash-beats-"


class BeatPage:
    """The writer's side of a page. Its memory is reserved first, so no store can fail later.

    Lives in /dev/shm; where that is missing or full in an anonymous memory file, reached through
    `/proc/PID/fd/N`; else in private memory, which nobody else can see. `path` and
    `note` say which.
    """

    def __init__(self, identity: Identity, unique: str, shm: Path = SHM) -> None:
        self.path: Path | None = None
        self.note: str | None = None
        self._lock = threading.RLock()
        self._texts = {"": 0}
        self._memfd: int | None = None
        self._shared_fd: int | None = None
        self._map = self._create(identity, unique, shm)
        self.words = memoryview(self._map).cast("q")
        self._write_header(identity)

    def share(self) -> None:
        """Other processes will add workers (`JoinedPage`): a lock on the file comes first now."""
        if self.path is not None:
            self._shared_fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """No other thread, and no other process, gives out texts or slots."""
        with self._lock:
            if self._shared_fd is None:
                yield
                return
            fcntl.flock(self._shared_fd, fcntl.LOCK_EX)
            try:
                self._learn_texts()
                yield
            finally:
                fcntl.flock(self._shared_fd, fcntl.LOCK_UN)

    def _learn_texts(self) -> None:
        """Texts that other processes have added."""
        for number in range(len(self._texts), self.words[at.H_TEXTS_USED]):
            start = (at.TEXTS_AT + number * at.TEXT_WORDS) * 8
            self._texts[at.decode_text(self._map[start : start + at.TEXT_BYTES])] = number

    def _create(self, identity: Identity, unique: str, shm: Path) -> mmap.mmap:
        path = shm / f"{PREFIX}{identity.pid}-{identity.start_ticks}-{unique}"
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
            try:
                mapped = _reserved_map(fd)
            except OSError:
                remove_quietly(path)
                raise
        except OSError as error:
            self.note = f"no page in {shm}: {error.strerror or error}"
        else:
            self.path = path
            return mapped
        try:
            # Its descriptor stays open: that is the only name it has.
            self._memfd = os.memfd_create(PREFIX + unique)
            self.path = Path(f"/proc/{identity.pid}/fd/{self._memfd}")
            return _reserved_map(os.dup(self._memfd))
        except (AttributeError, OSError) as error:
            self.path = None
            self.note += f"; none in an anonymous file: {error}; private, cannot be read"
            return mmap.mmap(-1, at.PAGE_BYTES)

    def _write_header(self, identity: Identity) -> None:
        words = self.words
        words[at.H_SCHEMA] = at.LAYOUT_SCHEMA
        words[at.H_PAGE_BYTES] = at.PAGE_BYTES
        words[at.H_TEXTS], words[at.H_SLOTS] = at.TEXTS, at.SLOTS
        words[at.H_TEXTS_USED] = 1
        words[at.H_PID], words[at.H_START_TICKS] = identity.pid, identity.start_ticks
        words[at.H_PID_NAMESPACE] = identity.pid_namespace or at.NOTHING
        boot = (identity.boot_id or "").encode("ascii", "replace")[:40]
        self._map[at.H_BOOT_ID * 8 : at.H_BOOT_ID * 8 + len(boot)] = boot
        words[at.H_MAGIC] = at.MAGIC  # last: until now it is no page

    def text(self, text: str | None) -> int:
        """Number of a text in the page; 0 where there is none or no room is left."""
        if not text:
            return 0
        known = self._texts.get(text)
        return known if known is not None else self._add_text(text)

    def _add_text(self, text: str) -> int:
        with self._alone():
            number = self._texts.get(text)
            if number is not None:
                return number
            number = self.words[at.H_TEXTS_USED]
            if number >= at.TEXTS:
                return 0
            raw, start = at.encode_text(text), (at.TEXTS_AT + number * at.TEXT_WORDS) * 8
            self._map[start : start + len(raw)] = raw
            self.words[at.H_TEXTS_USED] = number + 1
            self._texts[text] = number
            return number

    def add_slot(self, name: str, role: str, device: str | None, tid: int) -> int | None:
        """First word of a new worker slot, or None when all are taken (which is counted)."""
        name_number, role_number = self.text(name), self.text(role)
        device_number = self.text(device)
        with self._alone():
            words, used = self.words, self.words[at.H_SLOTS_USED]
            if used >= at.SLOTS:
                words[at.H_WORKERS_LEFT_OUT] += 1
                return None
            base = at.SLOTS_AT + used * at.SLOT_WORDS
            for field in range(at.S_STEP, at.S_BEGIN):
                words[base + field] = at.NOTHING
            words[base + at.S_STATE] = STATES.index("running")
            for field in (at.S_PHASE, at.S_WAIT, at.S_WAIT_OBJECT, at.S_WAITS_FOR):
                words[base + field] = 0
            words[base + at.S_NAME], words[base + at.S_ROLE] = name_number, role_number
            words[base + at.S_DEVICE], words[base + at.S_TID] = device_number, tid
            words[at.H_SLOTS_USED] = used + 1
            return base

    def set_phase(self, number: int) -> None:
        """The run-wide phase, by its text's number."""
        self.words[at.H_PHASE_NS] = time.monotonic_ns()
        self.words[at.H_PHASE] = number

    def count_dropped(self, events: int = 1) -> None:
        """Events that found no room."""
        with self._lock:
            self.words[at.H_DROPPED] += events

    def count_write_error(self, errno: int) -> None:
        """A file of the run directory could not be written."""
        with self._lock:
            self.words[at.H_LAST_ERRNO] = errno
            self.words[at.H_LAST_ERROR_NS] = time.monotonic_ns()
            self.words[at.H_WRITE_ERRORS] += 1

    def set_ended(self) -> None:
        """The run ended in an orderly way; the page does not change any more."""
        self.words[at.H_ENDED] = 1

    def bytes_now(self) -> bytes:
        """A copy of the whole page."""
        return self._map[:]

    def become_private(self) -> None:
        """In a forked child: go on in private memory, the page belongs to the parent."""
        copy = mmap.mmap(-1, at.PAGE_BYTES)
        copy[:] = self._map[:]
        self._map, self.words = copy, memoryview(copy).cast("q")
        self._lock = threading.RLock()
        self._shared_fd = None

    def unlink(self) -> None:
        """Take the page's name away; whoever has it open still reads it."""
        if self._memfd is not None:
            os.close(self._memfd)
            self._memfd = None
        elif self.path is not None:
            remove_quietly(self.path)


class JoinedPage(BeatPage):
    """Another process's page, in which this one adds workers of its own.

    What concerns the whole run - its phase, its end, the page's life - stays with the page's owner.
    A page that cannot be opened leaves this process with a private one, which nobody else sees.
    """

    def __init__(self, path: Path | None) -> None:
        self.path, self.note = path, None
        self._lock = threading.RLock()
        self._texts = {"": 0}
        self._memfd = self._shared_fd = None
        try:
            self._shared_fd = os.open(path or "", os.O_RDWR | os.O_CLOEXEC)
            self._map = mmap.mmap(self._shared_fd, at.PAGE_BYTES)
        except (OSError, ValueError) as error:
            self.path, self.note = None, f"page of the run not joined: {error}; private"
            self._map = mmap.mmap(-1, at.PAGE_BYTES)
        self.words = memoryview(self._map).cast("q")
        if self.path is None:
            self._write_header(Identity(os.getpid(), 0))

    def set_phase(self, number: int) -> None:
        """The run's phase is its owner's to say."""

    def set_ended(self) -> None:
        """The run's end is its owner's to say."""

    def unlink(self) -> None:
        """The page goes with its owner."""


def _reserved_map(fd: int) -> mmap.mmap:
    """Maps the file with all its memory reserved: a full tmpfs must fail here, not in a store."""
    try:
        os.posix_fallocate(fd, 0, at.PAGE_BYTES)
        return mmap.mmap(fd, at.PAGE_BYTES)
    finally:
        os.close(fd)


def remove_quietly(path: Path) -> None:
    """Remove a file; that it is gone or not ours to remove does not matter."""
    try:
        path.unlink()
    except OSError:
        return


def remove_dead_pages(shm: Path = SHM, proc: Path = Path("/proc")) -> list[Path]:
    """Remove pages of processes that are dead for certain; says which.

    A page of another pid namespace or boot stays: from here nobody can tell whether its run lives.
    """
    removed: list[Path] = []
    try:
        pages = sorted(shm.glob(PREFIX + "*"))
    except OSError:
        return removed
    for path in pages:
        identity = page_identity(path)
        if identity is not None and is_alive(identity, proc) is False:
            remove_quietly(path)
            removed.append(path)
    return removed
