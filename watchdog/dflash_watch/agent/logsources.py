"""Where a run really writes its log: descriptors 1 and 2, log-like files, what is behind pipes.

Reads links and fdinfo below `/proc` only, so nothing here can hang on a dead mount.
"""

from __future__ import annotations

import os
import re
from typing import Dict, List, NamedTuple, Optional, Set, Tuple

from dflash_watch.agent import proc
from dflash_watch.agent.memory import read_argv, read_environment
from dflash_watch.agent.suspects import LAUNCHER
from dflash_watch.agent.table import is_ours
from dflash_watch.agent.writers import (
    Descriptor,
    descriptors,
    launcher_reading,
    read_descriptor,
    readers_of,
)

LOG_NAME = re.compile(
    r"(?:\.(?:log|out|err|stdout|stderr)(?:[.\-]\d+)?$)|(?:^nohup\.out)|(?:\blogs?/[^/]+\.txt$)"
)
NOT_A_LOG = re.compile(
    r"(?:^|/)(?:#\d+|events\.jsonl|beats|events\.out\.tfevents\S*|\S+\.(?:wandb|safetensors|pt|lock))$"
)
MAX_PROCESSES = 24
MAX_SOURCES = 8
RESCAN_S = 5.0
DELETED = " (deleted)"


class Source(NamedTuple):
    """One thing written to: where the link points and through which way it was found."""

    pid: Optional[int]
    fd: Optional[int]
    link: str
    via: str
    append: Optional[bool]
    pos: Optional[int]
    writer: Optional[int]
    """The process of the run that writes, also where a tee stands between."""

    @property
    def kind(self) -> str:
        """`file`, `pipe`, `tty`, `socket`, `null`, `other`."""
        if self.link.startswith(("pipe:", "socket:", "anon_inode:")):
            return "other" if self.link.startswith("anon") else self.link.partition(":")[0]
        if self.link.startswith(("/dev/pts/", "/dev/tty", "/dev/console")):
            return "tty"
        if self.link == "/dev/null":
            return "null"
        return (
            "file" if self.link.startswith("/") and not self.link.startswith("/dev/") else "other"
        )

    @property
    def path(self) -> str:
        """The link without the mark of deletion."""
        return self.link[: -len(DELETED)] if self.link.endswith(DELETED) else self.link


class SourceFinder:
    """Sources of the run's processes; dear looks are repeated only now and then."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._extra: Dict[int, List[int]] = {}
        self._readers: Dict[str, List[int]] = {}
        self._scanned_s: Optional[float] = None
        self._scanned: Set[int] = set()
        self._last: List[Source] = []

    def read(self, pids: List[int], now_s: float) -> List[Source]:
        """Sources now, the root's output first; of a run that ended, the last ones by path."""
        due = self._scanned_s is None or now_s - self._scanned_s >= RESCAN_S
        considered = pids[:MAX_PROCESSES]
        if due or not set(considered) <= self._scanned:
            self._scan(considered, now_s)
        found: Dict[str, Source] = {}
        for pid in considered:
            for fd in [1, 2, *self._extra.get(pid, [])]:
                descriptor = read_descriptor(self._root, pid, fd)
                if descriptor is None or (fd > 2 and not descriptor.writes):
                    continue
                if NOT_A_LOG.search(descriptor.link.replace(DELETED, "")):
                    continue
                self._add(found, descriptor, f"fd {fd}", pid, hops=2)
        if found:
            self._last = _ranked(list(found.values()))[:MAX_SOURCES]
            return self._last
        self._last = [
            source._replace(pid=None, fd=None, pos=None)
            for source in self._last
            if source.kind in ("file", "tty")
        ]
        return self._last

    def _scan(self, pids: List[int], now_s: float) -> None:
        self._scanned_s, self._scanned = now_s, set(pids)
        self._readers.clear()
        self._extra = {pid: self._log_like(pid) for pid in pids}

    def _log_like(self, pid: int) -> List[int]:
        fds = []
        for fd in (proc.list_fds(self._root, pid) or [])[:2048]:
            link = proc.read_link(f"{self._root}/{pid}/fd/{fd}") or ""
            path = link[: -len(DELETED)] if link.endswith(DELETED) else link
            if (
                fd > 2
                and path.startswith("/")
                and LOG_NAME.search(path)
                and not NOT_A_LOG.search(path)
            ):
                fds.append(fd)
        return fds[:16]

    def _add(
        self, found: Dict[str, Source], descriptor: Descriptor, via: str, writer: int, hops: int
    ) -> None:
        source = Source(
            descriptor.pid,
            descriptor.fd,
            descriptor.link,
            via,
            descriptor.append,
            descriptor.pos,
            writer,
        )
        if source.kind == "pipe" and hops > 0:
            behind = self._behind(descriptor)
            for next_one, next_via in behind:
                self._add(found, next_one, next_via, writer, hops - 1)
            if behind:
                return
        found.setdefault(source.link, source)

    def _behind(self, pipe: Descriptor) -> List[Tuple[Descriptor, str]]:
        """What the reader of a pipe writes: files, terminals, further pipes."""
        readers = self._readers.get(pipe.link)
        if readers is None:
            readers = self._readers[pipe.link] = readers_of(self._root, pipe.link, pipe.pid)
        behind = []
        for pid in readers[:4]:
            if is_ours(read_argv(self._root, pid)):
                continue
            stat = proc.read_stat(self._root, pid)
            via = f"pipe -> {stat.comm if stat else '?'}({pid})"
            files = [
                each
                for each in descriptors(self._root, pid)
                if each.writes
                and each.fd != 2
                and not NOT_A_LOG.search(each.link)
                and each.link != pipe.link
            ]
            real = [
                each
                for each in files
                if each.link.startswith("/") and not each.link.startswith("/dev/null")
            ]
            behind += [(each, via) for each in sorted(real or files, key=lambda each: each.fd == 1)]
        return behind or self._behind_launcher(pipe)

    def _behind_launcher(self, pipe: Descriptor) -> List[Tuple[Descriptor, str]]:
        """What a launcher that collects its workers' output writes: its own output and logs."""
        pid = launcher_reading(self._root, pipe.link, pipe.pid)
        argv = read_argv(self._root, pid) if pid is not None else []
        if pid is None or not LAUNCHER.search(" ".join(argv[:6])):
            return []
        stat = proc.read_stat(self._root, pid)
        via = f"pipe -> {stat.comm if stat else '?'}({pid})"
        wanted = [1, *self._log_like(pid)]
        found = [read_descriptor(self._root, pid, fd) for fd in wanted]
        return [(each, via) for each in found if each is not None and each.writes]


def _ranked(sources: List[Source]) -> List[Source]:
    """Files with text first, in the order found; what can never be read last."""
    order = {"file": 0, "tty": 1, "pipe": 2, "socket": 2}
    useful = [source for source in sources if source.kind != "null"] or sources[:1]
    return sorted(useful, key=lambda source: order.get(source.kind, 3))


def is_unbuffered(root: str, pid: int) -> Optional[bool]:
    """PYTHONUNBUFFERED or `-u` at the start; None when that cannot be read.

    Only this fact is kept: the environment itself never leaves the machine.
    """
    argv = read_argv(root, pid)
    for word in argv[1:]:
        if not word.startswith("-") or word in ("-c", "-m", "-"):
            break
        if not word.startswith("--") and "u" in word[1:]:
            return True
    environment = read_environment(root, pid)
    if environment is None:
        return None
    for entry in environment.split(b"\0"):
        if entry.startswith(b"PYTHONUNBUFFERED="):
            return len(entry) > len(b"PYTHONUNBUFFERED=")
    return False


def exists(path: str) -> bool:
    """Is there anything at this path (may block on a dead mount)."""
    return os.path.lexists(path)
