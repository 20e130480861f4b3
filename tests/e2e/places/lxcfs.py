"""lxcfs on the host: started if nobody has, stopped only by the last one who uses what we started.

Killing lxcfs under a running container leaves it with dead mounts for ever, so each user holds a
shared lock while its container lives, and only a holder of the exclusive lock stops it.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from e2e.places.needs import give_up
from e2e.places.rootfs import cache_dir

MOUNT = Path("/var/lib/lxcfs")


def is_mounted() -> bool:
    """Whether some lxcfs serves `MOUNT` now."""
    return any(
        line.split()[4] == str(MOUNT)
        for line in Path("/proc/self/mountinfo").read_text().splitlines()
    )


@contextmanager
def lxcfs() -> Iterator[None]:
    """lxcfs is mounted for the body."""
    user = (cache_dir() / "lxcfs.users").open("a")
    with user, (cache_dir() / "lxcfs.lock").open("a") as gate:
        fcntl.flock(gate, fcntl.LOCK_EX)
        started = None if is_mounted() else _start()
        fcntl.flock(user, fcntl.LOCK_SH)
        fcntl.flock(gate, fcntl.LOCK_UN)
        if started is not None:
            (cache_dir() / "lxcfs.pid").write_text(str(started))
        try:
            yield
        finally:
            fcntl.flock(gate, fcntl.LOCK_EX)
            _stop_if_last(user.fileno())


def _start() -> int:
    MOUNT.mkdir(parents=True, exist_ok=True)
    # --fork: it outlives this session if somebody else's container uses it by then.
    argv = ["setsid", "--fork", "lxcfs", str(MOUNT)]
    null = subprocess.DEVNULL
    subprocess.run(argv, stdin=null, stdout=null, stderr=null, check=True, timeout=10)
    deadline = time.monotonic() + 90
    while not is_mounted():
        if time.monotonic() > deadline:
            give_up("lxcfs does not start (is /dev/fuse there?)")
        time.sleep(0.02)
    command = b"\0".join([b"lxcfs", str(MOUNT).encode()])
    return next(pid for pid in _pids() if command in _cmdline(pid))


def _stop_if_last(user_fd: int) -> None:
    """Called with the gate held, so nobody comes in between."""
    pid_file = cache_dir() / "lxcfs.pid"
    if not pid_file.exists():
        return
    try:
        fcntl.flock(user_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    pid = int(pid_file.read_text())
    if _is_lxcfs(pid) and not _any_container():
        os.kill(pid, signal.SIGTERM)
        pid_file.unlink()


def _is_lxcfs(pid: int) -> bool:
    return _cmdline(pid).startswith(b"lxcfs\0")


def _any_container() -> bool:
    """Somebody's container, ours or not, still runs."""
    return any(b"[lxc monitor]" in _cmdline(pid) for pid in _pids())


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _cmdline(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # the process ended while we looked
        return b""
