"""One row a thread: name, state, ticks, switches, wchan, system call.

Descriptors of `task/TID/*` are held open where that pays: a read through one costs a fifth of
opening the path anew, and one of a thread that has ended fails instead of naming a stranger.
"""

from __future__ import annotations

import os
from typing import Any, Dict, List, Optional, Tuple

from dflash_watch.agent import proc
from dflash_watch.agent.probes.processes import parse_status, parse_syscall, parse_wchan

HELD_THREADS = 256
"""Up to so many threads keep their descriptors; above, each read opens anew, at a slower pace."""
MAX_THREADS = 4096
FILES = ("stat", "wchan", "syscall", "status")
Row = List[Any]


class HeldThread:
    """Open descriptors of one thread; -1 where the kernel refuses."""

    def __init__(self, base: str) -> None:
        self.fds: List[int] = []
        for name in FILES:
            try:
                self.fds.append(os.open(base + name, os.O_RDONLY | os.O_CLOEXEC))
            except OSError:
                self.fds.append(-1)

    def read(self, index: int, limit: int) -> Optional[bytes]:
        """The file's text now; None when refused or the thread has ended."""
        if self.fds[index] < 0:
            return None
        try:
            return os.pread(self.fds[index], limit, 0)
        except OSError:
            return None

    def close(self) -> None:
        """Let go."""
        for descriptor in self.fds:
            if descriptor >= 0:
                os.close(descriptor)
        self.fds = [-1] * len(FILES)


class ThreadReader:
    """Threads of the run's processes."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._held: Dict[Tuple[int, int], HeldThread] = {}

    @property
    def held_threads(self) -> int:
        """Threads whose descriptors are open now."""
        return len(self._held)

    def read(
        self, pids: List[int], *, with_switches: bool
    ) -> Tuple[Dict[str, List[Row]], Optional[str]]:
        """Rows a process as `frame.ThreadSample`, and why some are missing.

        Args:
            pids: the processes.
            with_switches: also context switches, the dearest of the files; else None in the rows.
        """
        listed = [(pid, tid) for pid in pids for tid in self._tids(pid)]
        note = None
        if len(listed) > MAX_THREADS:
            note = f"{len(listed)} threads, only {MAX_THREADS} are read"
            listed = listed[:MAX_THREADS]
        hold = len(listed) <= HELD_THREADS
        self._drop_all_but(set(listed) if hold else set())
        threads: Dict[str, List[Row]] = {}
        for pid, tid in listed:
            row = self._row(pid, tid, with_switches=with_switches, hold=hold)
            if row is not None:
                threads.setdefault(str(pid), []).append(row)
        return threads, note

    def close(self) -> None:
        """Let go of every descriptor."""
        self._drop_all_but(set())

    def _tids(self, pid: int) -> List[int]:
        try:
            return sorted(int(name) for name in os.listdir(f"{self._root}/{pid}/task"))
        except (OSError, ValueError):
            return []

    def _drop_all_but(self, wanted: set[Tuple[int, int]]) -> None:
        for key in [key for key in self._held if key not in wanted]:
            self._held.pop(key).close()

    def _row(self, pid: int, tid: int, *, with_switches: bool, hold: bool) -> Optional[Row]:
        held = self._held.get((pid, tid))
        if held is None:
            held = HeldThread(f"{self._root}/{pid}/task/{tid}/")
            if hold:
                self._held[(pid, tid)] = held
        try:
            return read_row(held, tid, with_switches=with_switches)
        finally:
            if not hold:
                held.close()


def run_delay_s(root: str, pid: int, tid: int) -> Optional[float]:
    """How long a thread has waited for a processor in its life; None where the kernel hides it."""
    words = (proc.read_text(f"{root}/{pid}/task/{tid}/schedstat", 128) or "").split()
    return int(words[1]) / 1e9 if len(words) == 3 and words[1].isdigit() else None


def read_row(held: HeldThread, tid: int, *, with_switches: bool) -> Optional[Row]:
    """One row; None when the thread has ended."""
    line = held.read(0, 1024)
    if not line:
        return None
    try:
        row = parse(line.decode("utf-8", "replace"), tid)
    except ValueError:
        return None
    status = held.read(3, 4096) if with_switches else None
    if status:
        values = parse_status(status.decode("utf-8", "replace"))
        row[4], row[5] = values.get("voluntary_switches"), values.get("involuntary_switches")
    row[6] = parse_wchan((held.read(1, 128) or b"").decode("ascii", "replace"))
    row[7] = parse_syscall((held.read(2, 256) or b"").decode("ascii", "replace"))
    return row


def parse(text: str, tid: int) -> Row:
    """A row from the thread's `stat` line: the fields that `stat` has.

    Raises:
        ValueError: not a stat line.
    """
    opening, closing = text.find("("), text.rfind(")")
    rest = text[closing + 1 : closing + 200].split(None, 13) if 0 <= opening < closing else []
    if len(rest) < 13:
        raise ValueError("stat: too short")
    ticks = int(rest[11]) + int(rest[12])
    return [tid, text[opening + 1 : closing], rest[0], ticks, None, None, None, None]
