"""What a drill makes on this machine, each undone whatever happens: processes, mounts, a cgroup.

Nothing outside the drill's own folder is written, but for a memory group of its own. A drill that
was killed undoes nothing: what it left is known by a lock that nobody holds, and the next one
removes it.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import importlib.util
import os
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from dflash_watch.drills.catalog import Need

TMPFS_BYTES = 128 << 20
END_S = 10.0
MNT_DETACH = 2
UMOUNT_NOFOLLOW = 8
CGROUP = Path("/sys/fs/cgroup")
PREFIX = "dflash-drill-"
YOUNG_S = 60.0
"""Of what a drill may be making just now, before it holds the lock."""
EMPTY_WITHIN_S = 5.0
"""A process that was killed leaves its group a moment later."""


def lacks(need: Need) -> str | None:
    """Why this machine cannot give it; None when it can."""
    match need:
        case "trainer":
            found = importlib.util.find_spec("torch") and importlib.util.find_spec("dflash_train")
            return None if found else "no torch here: pip install 'dflash-toolkit[train]'"
        case "compiler":
            return None if shutil.which("gcc") else "no gcc here"
        case "tmpfs":
            return None if os.geteuid() == 0 else "a small file system of its own needs root"
        case "memory-cgroup":
            return _lacks_memory_group()


def _lacks_memory_group() -> str | None:
    try:
        with memory_group():
            return None
    except OSError as error:
        return f"no memory cgroup can be made here ({error.strerror})"


def start(
    argv: Sequence[str],
    folder: Path,
    output: Path,
    environment: Mapping[str, str],
    group: MemoryGroup | None = None,
) -> subprocess.Popen[bytes]:
    """A program in a session of its own, its output in a file."""
    env = {**environment, "OMP_NUM_THREADS": "1"}
    with output.open("wb") as out:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, cwd=folder,
            env=env, start_new_session=True,
        )  # fmt: skip
    if group is not None:
        group.take(process.pid)
    return process


def end(process: subprocess.Popen[bytes]) -> None:
    """End it and its children, stopped or not; waits for it."""
    if process.poll() is None:
        for number in (signal.SIGKILL, signal.SIGCONT):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
    process.wait(END_S)


@contextlib.contextmanager
def tmpfs(folder: Path) -> Iterator[Path]:
    """A file system of `TMPFS_BYTES` at this folder.

    Raises:
        OSError: not allowed here.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    folder.mkdir()
    options = f"size={TMPFS_BYTES}".encode()
    if libc.mount(b"dflash-drill", os.fsencode(folder), b"tmpfs", 0, options) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    try:
        yield folder
    finally:
        libc.umount2(os.fsencode(folder), MNT_DETACH)


class MemoryGroup:
    """A memory cgroup of its own, version 2 or 1.

    Args:
        folder: made already.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        is_v2 = (folder / "memory.max").exists()
        self._limit = folder / ("memory.max" if is_v2 else "memory.limit_in_bytes")
        self._usage = folder / ("memory.current" if is_v2 else "memory.usage_in_bytes")
        self._swap = folder / ("memory.swap.max" if is_v2 else "memory.memsw.limit_in_bytes")

    def check(self) -> None:
        """Try the limit's file.

        Raises:
            OSError: there is none: the memory controller is not on here.
        """
        self._usage.read_text()
        self._limit.read_text()

    def take(self, pid: int) -> None:
        """This process and what it starts from now on."""
        (self._folder / "cgroup.procs").write_text(str(pid))

    def limit(self, more_bytes: int) -> None:
        """No more than what is in use now and so much."""
        most = int(self._usage.read_text()) + more_bytes
        self._limit.write_text(str(most))
        with contextlib.suppress(OSError):  # without swap, or without its accounting
            self._swap.write_text("0" if self._swap.name == "memory.swap.max" else str(most))

    def remove(self) -> None:
        """Once it is empty; what stays after all is left to the next drill."""
        end_s = time.monotonic() + EMPTY_WITHIN_S
        while time.monotonic() < end_s:
            with contextlib.suppress(OSError):
                self._folder.rmdir()
                return
            time.sleep(0.05)


@contextlib.contextmanager
def memory_group() -> Iterator[MemoryGroup]:
    """A memory cgroup, removed at the end.

    Raises:
        OSError: not allowed here, or no memory controller.
    """
    folder = _groups() / f"{PREFIX}{os.getpid()}-{time.monotonic_ns()}"
    folder.mkdir()
    group = MemoryGroup(folder)
    try:
        with claimed(folder):
            group.check()
            yield group
    finally:
        group.remove()


def _groups() -> Path:
    return CGROUP / "memory" if (CGROUP / "memory").is_dir() else CGROUP


@contextlib.contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """Hold a lock on a folder, so that no other drill takes it for one left behind."""
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_SH)
        yield
    finally:
        os.close(lock)


def sweep(now_t: float) -> None:
    """Remove what drills of this user left that were killed: folders, mounts in them, groups.

    Args:
        now_t: wall clock; what was changed within `YOUNG_S` before it stays.
    """
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        if _is_left(folder, now_t):
            mount = os.fsencode(folder / "run")
            ctypes.CDLL(None).umount2(mount, MNT_DETACH | UMOUNT_NOFOLLOW)
            shutil.rmtree(folder, ignore_errors=True)
    for folder in _groups().glob(f"{PREFIX}*"):
        if _is_left(folder, now_t):
            with contextlib.suppress(OSError):  # somebody is in it
                folder.rmdir()


def _is_left(folder: Path, now_t: float) -> bool:
    try:
        seen = folder.lstat()
        if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != os.geteuid():
            return False
        if seen.st_ctime > now_t - YOUNG_S:
            return False
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(lock)
    return True
