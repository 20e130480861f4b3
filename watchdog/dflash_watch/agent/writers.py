"""Who writes a file, and who feeds a pipe: found by descriptors, not by names."""

from __future__ import annotations

import os
from typing import Iterator, List, NamedTuple, Optional, Tuple

from dflash_watch.agent import proc
from dflash_watch.agent.memory import read_argv

O_ACCMODE = 3


class Descriptor(NamedTuple):
    """One open descriptor as `/proc` shows it."""

    pid: int
    fd: int
    link: str
    flags: int
    pos: int

    @property
    def writes(self) -> bool:
        """Open for writing."""
        return self.flags & O_ACCMODE != os.O_RDONLY

    @property
    def append(self) -> bool:
        """O_APPEND is set."""
        return bool(self.flags & os.O_APPEND)

    @property
    def reads(self) -> bool:
        """Open for reading only: the far end of a pipe."""
        return self.flags & O_ACCMODE == os.O_RDONLY


def read_descriptor(root: str, pid: int, fd: int) -> Optional[Descriptor]:
    """Link, flags and position of one descriptor; None when gone or refused."""
    link = proc.read_link(f"{root}/{pid}/fd/{fd}")
    if link is None:
        return None
    pairs = proc.parse_pairs(proc.read_text(f"{root}/{pid}/fdinfo/{fd}", proc.SHORT) or "")
    try:
        return Descriptor(
            pid, fd, link, int(pairs.get("flags", "0"), 8), int(pairs.get("pos", "0"))
        )
    except ValueError:
        return None


def descriptors(root: str, pid: int) -> Iterator[Descriptor]:
    """Every descriptor of a process that can be read."""
    for fd in proc.list_fds(root, pid) or []:
        descriptor = read_descriptor(root, pid, fd)
        if descriptor is not None:
            yield descriptor


def refusal(root: str, pids: List[int]) -> Optional[str]:
    """Why no descriptor of these processes can be listed; None when some can, or none is there."""
    refused = 0
    for pid in pids:
        try:
            os.listdir(f"{root}/{pid}/fd")
        except PermissionError:
            refused += 1
        except OSError:
            continue
        else:
            return None
    if not refused:
        return None
    return (
        f"not allowed to see where the run writes: be its user (this is uid {os.getuid()}), or root"
    )


def writers_of(root: str, path: str) -> List[int]:
    """Processes that have this very file open for writing, whatever it is called now.

    Those whose standard output or error it is come first: a launcher that opened it keeps a copy.

    The file is known by device and inode; when the path is gone, by the name that the link keeps.
    """
    path = os.path.realpath(path)
    try:
        wanted = os.stat(path)
    except OSError:
        wanted = None
    found: List[Tuple[bool, int]] = []
    for pid in proc.list_pids(root):
        for fd in proc.list_fds(root, pid) or []:
            link = proc.read_link(f"{root}/{pid}/fd/{fd}") or ""
            if not link.startswith("/") or link.startswith(("/dev/", "/proc/")):
                continue
            if not _is_file(root, pid, fd, link, path, wanted):
                continue
            descriptor = read_descriptor(root, pid, fd)
            if descriptor is not None and descriptor.writes:
                found.append((fd > 2, pid))
                break
    return [pid for _later, pid in sorted(found)]


def _is_file(
    root: str, pid: int, fd: int, link: str, path: str, wanted: Optional[os.stat_result]
) -> bool:
    if link == path or link == path + " (deleted)":
        return True
    # A renamed file keeps its directory nearly always: only those are asked for their inode, since
    # a stat of a stranger's file can hang on a dead mount.
    if wanted is None or os.path.dirname(link) != os.path.dirname(path):
        return False
    try:
        there = os.stat(f"{root}/{pid}/fd/{fd}")
    except OSError:
        return False
    return (there.st_dev, there.st_ino) == (wanted.st_dev, wanted.st_ino)


def upstream_of(root: str, pid: int, hops: int = 3) -> int:
    """The process at the start of the pipe that feeds `pid` (tee, a logger), else `pid`."""
    for _hop in range(hops):
        source = proc.read_link(f"{root}/{pid}/fd/0") or ""
        if not source.startswith("pipe:"):
            return pid
        feeders = [
            other
            for other in proc.list_pids(root)
            if other != pid
            and any(proc.read_link(f"{root}/{other}/fd/{fd}") == source for fd in (1, 2))
        ]
        if not feeders:
            return pid
        pid = _best_feeder(root, feeders)
    return pid


def _best_feeder(root: str, feeders: List[int]) -> int:
    """A Python among them, else the first: a shell keeps its copy of the pipe open as well."""
    for pid in feeders:
        stat = proc.read_stat(root, pid)
        exe = proc.read_link(f"{root}/{pid}/exe")
        if stat is not None and proc.is_python(exe, stat.comm, read_argv(root, pid)):
            return pid
    return feeders[0]


def launcher_reading(root: str, pipe_link: str, pid: int) -> Optional[int]:
    """The parent (or its parent) that reads this pipe on any descriptor, as launchers do."""
    for _hop in range(3):
        stat = proc.read_stat(root, pid)
        if stat is None or stat.ppid <= 1:
            return None
        pid = stat.ppid
        if any(each.link == pipe_link and each.reads for each in descriptors(root, pid)):
            return pid
    return None


def readers_of(root: str, pipe_link: str, but: int) -> List[int]:
    """Processes that read this pipe on descriptor 0 (tee and loggers do)."""
    return [
        pid
        for pid in proc.list_pids(root)
        if pid != but and proc.read_link(f"{root}/{pid}/fd/0") == pipe_link
    ]
