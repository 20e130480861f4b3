"""One row a thread: name, state, ticks, switches, wchan, system call.

Descriptors of `task/TID/*` are held open where that pays: a read through one costs a fifth of
opening the path anew, and one of a thread that has ended fails instead of naming a stranger. Of
more threads each is first asked whether it has run at all (`schedstat`): a pool that waits costs
one read a thread.
"""

from __future__ import annotations

import os
import resource
from typing import Any, Dict, List, Optional, Set, Tuple

from dflash_watch.agent import proc
from dflash_watch.agent.probes.processes import parse_status, parse_syscall, parse_wchan

HELD_THREADS = 256
"""Up to so many threads keep their descriptors; above, each read opens anew, at a slower pace."""
MAX_THREADS = 4096
"""Of so many a row is sent; the frame says of whom there are more."""
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
        self._kept: Dict[Tuple[int, int], Tuple[bytes, Row]] = {}
        self.left_out: Dict[str, int] = {}
        """pid -> how many of its threads the last reading did not look at."""

    @property
    def held_threads(self) -> int:
        """Threads whose descriptors are open now."""
        return len(self._held)

    def read(
        self, pids: List[int], *, with_switches: bool
    ) -> Tuple[Dict[str, List[Row]], Optional[str]]:
        """Rows a process as `frame.ThreadSample`, and what is left out of too many.

        Args:
            pids: the processes.
            with_switches: also context switches, the dearest of the files; else None in the rows.
        """
        tids = {pid: self._tids(pid) for pid in pids}
        share = fair_share([len(each) for each in tids.values()], MAX_THREADS)
        listed = [(pid, tid) for pid, each in tids.items() for tid in each[:share]]
        self.left_out = {
            str(pid): len(each) - share for pid, each in tids.items() if len(each) > share
        }
        hold = len(listed) <= min(HELD_THREADS, holdable_threads())
        self._drop_all_but(set(listed), hold=hold)
        threads: Dict[str, List[Row]] = {}
        for pid, tid in listed:
            look = self._held_row if hold else self._row_anew
            row = look(pid, tid, with_switches=with_switches)
            if row is not None:
                threads.setdefault(str(pid), []).append(row)
        return threads, left_out_note(self.left_out) if self.left_out else None

    def close(self) -> None:
        """Let go of every descriptor."""
        self._drop_all_but(set(), hold=False)

    def _tids(self, pid: int) -> List[int]:
        try:
            return sorted(int(name) for name in os.listdir(f"{self._root}/{pid}/task"))
        except (OSError, ValueError):
            return []

    def _drop_all_but(self, wanted: Set[Tuple[int, int]], *, hold: bool) -> None:
        for key in [key for key in self._held if not hold or key not in wanted]:
            self._held.pop(key).close()
        for key in [key for key in self._kept if hold or key not in wanted]:
            del self._kept[key]

    def _held_row(self, pid: int, tid: int, *, with_switches: bool) -> Optional[Row]:
        held = self._held.get((pid, tid))
        if held is None:
            held = self._held[(pid, tid)] = HeldThread(f"{self._root}/{pid}/task/{tid}/")
        return read_row(held, tid, with_switches=with_switches)

    def _row_anew(self, pid: int, tid: int, *, with_switches: bool) -> Optional[Row]:
        """Of a thread that has not run since the last reading nothing can have changed."""
        base = f"{self._root}/{pid}/task/{tid}/"
        ran = proc.read_bytes(base + "schedstat", 128)
        known, row = self._kept.get((pid, tid), (None, []))  # type: Optional[bytes], Optional[Row]
        if ran is not None and ran == known and not ran.startswith(b"0 "):
            return row
        held = HeldThread(base)
        try:
            row = read_row(held, tid, with_switches=with_switches)
        finally:
            held.close()
        if row is not None and ran is not None:
            self._kept[(pid, tid)] = (ran, row)
        return row


def left_out_note(left_out: Dict[str, int]) -> str:
    """How many threads have no row, and whose."""
    some = ", ".join(f"{number} of process {pid}" for pid, number in list(left_out.items())[:4])
    more = f" and of {len(left_out) - 4} more processes" if len(left_out) > 4 else ""
    return f"too many threads: {some}{more} are not read, the newest ones"


def fair_share(counts: List[int], room: int) -> int:
    """The largest number that each may have at most so that all together stay within `room`."""
    left = sorted(counts)
    while left:
        share = room // len(left)
        if left[-1] <= share:
            return left[-1]
        if left[0] > share:
            return share
        room -= left.pop(0)
    return 0


def holdable_threads() -> int:
    """For how many threads half of the descriptors that may be open are enough."""
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return HELD_THREADS if soft == resource.RLIM_INFINITY else soft // 2 // len(FILES)


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
