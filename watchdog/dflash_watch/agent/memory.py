"""What only a process's own memory tells: its words, its environment, what it has mapped.

The kernel reads these through the process's memory map, whose lock can be held for ever (a page on
a dead mount, a call into a driver): the classic `ps` that hangs. So each read is done by a helper
process and waited for only so long; a process that does not answer is left alone for a while, and
at most MOST_STUCK helpers ever stand. One helper a process that asks, made when first needed.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import struct
import time
from typing import Any, Dict, List, NamedTuple, Optional

from dflash_watch.agent import proc
from dflash_watch.agent.forked import Process, fork, has_ended

WORDS_BYTES, ENVIRONMENT_BYTES, MAPS_BYTES = 16384, 1 << 20, 4 << 20
WAIT_S, NEXT_WAIT_S = 1.0, 0.2
"""How long one read may take; and while another process is known not to answer."""
STARVED_WAIT_S = 10.0
"""The helper is runnable but has not had its turn on a busy machine."""
LEAVE_ALONE_S, LONGEST_LEAVE_ALONE_S = 30.0, 600.0
MOST_STUCK = 2
IDLE_S = 10.0


def read_argv(root: str, pid: int) -> List[str]:
    """The command line's words; empty for kernel threads, zombies and memory that is held."""
    data = READS.read(root, pid, "cmdline", WORDS_BYTES) or b""
    return (
        [word.decode("utf-8", "replace") for word in data.rstrip(b"\0").split(b"\0")]
        if data
        else []
    )


def read_environment(root: str, pid: int) -> Optional[bytes]:
    """Variables at the start of the process, NUL after each; never leaves the machine."""
    return READS.read(root, pid, "environ", ENVIRONMENT_BYTES)


def read_maps(root: str, pid: int) -> str:
    """What the process has mapped; empty where that is refused or held."""
    return (READS.read(root, pid, "maps", MAPS_BYTES) or b"").decode("utf-8", "replace")


class Held(NamedTuple):
    """A process whose memory did not answer."""

    since_s: float
    again_s: float
    pause_s: float
    start_ticks: int


class Reads:
    """The helper of this process and what it found held.

    Args:
        leave_alone_s: before a process that did not answer is asked again.
    """

    def __init__(self, leave_alone_s: float = LEAVE_ALONE_S) -> None:
        self._leave_alone_s = leave_alone_s
        self._owner = 0
        self._helper: Optional[Process] = None
        self._stuck: List[int] = []
        self._held: Dict[int, Held] = {}
        self._used_s = 0.0
        self._cannot_fork = False

    @property
    def pid(self) -> Optional[int]:
        """The helper's process."""
        return self._helper.pid if self._helper is not None else None

    def read(self, root: str, pid: int, name: str, limit: int) -> Optional[bytes]:
        """At most `limit` bytes of `/proc/PID/NAME`; None when refused, gone or held.

        Args:
            root: `/proc`; recorded trees are read directly.
            pid: whose.
            name: the file.
            limit: bytes.
        """
        if root != "/proc":
            return proc.read_bytes(f"{root}/{pid}/{name}", limit)
        self._settle()
        now_s = self._used_s = time.monotonic()
        held = self._held.get(pid)
        if held is not None and _is_same(pid, held) and (self._stuck or now_s < held.again_s):
            return None  # whoever still stands in there proves that it is held
        if not self._is_ready():
            direct = self._cannot_fork and not waits_in_kernel(pid)
            return proc.read_bytes(f"{root}/{pid}/{name}", limit) if direct else None
        answer = self._ask(f"/proc/{pid}/{name}", limit)
        if answer is None:
            self._leave_alone(pid, now_s, held)
            return None
        if held is not None:
            del self._held[pid]
        data = answer.get("data")
        return data.encode("latin-1") if isinstance(data, str) else None

    def problem(self, pids: List[int]) -> Optional[Dict[str, Any]]:
        """Gap (`reason`, `since_s`) while the memory of one of these processes is held."""
        if not self._held:
            return None
        self._held = {pid: held for pid, held in self._held.items() if _is_same(pid, held)}
        here = sorted(set(pids) & set(self._held))
        if not here:
            return None
        names = ", ".join(map(_name, here[:4]))
        more = f" and {len(here) - 4} more" if len(here) > 4 else ""
        since_s = min(self._held[pid].since_s for pid in here)
        return {
            "reason": f"the memory of {names}{more} gives no answer: a thread in there holds its"
            " map; command line, rank and buffering are unknown",
            "since_s": round(time.monotonic() - since_s, 1),
        }

    def rest(self) -> None:
        """Let the helper go when nothing was asked for a while."""
        self._settle()
        if self._helper is not None and time.monotonic() - self._used_s > IDLE_S:
            self.close()

    def close(self) -> None:
        """End the helper without waiting for it."""
        self._settle()
        if self._helper is None:
            return
        os.close(self._helper.requests)
        os.close(self._helper.answers)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._helper.pid, signal.SIGKILL)
        self._stuck.append(self._helper.pid)
        self._helper = None

    def _settle(self) -> None:
        """Forget what belongs to the process that this one was forked from; note who ended."""
        if self._owner != os.getpid():
            self._owner, self._helper, self._stuck = os.getpid(), None, []
        self._stuck = [pid for pid in self._stuck if not has_ended(pid)[0]]

    def _is_ready(self) -> bool:
        if self._helper is None and len(self._stuck) < MOST_STUCK:
            try:
                self._helper, self._cannot_fork = fork(_serve), False
            except OSError:
                self._cannot_fork = True
                return False
        return self._helper is not None

    def _ask(self, path: str, limit: int) -> Optional[Dict[str, Any]]:
        """The helper's answer; None when it does not come (the helper is given up then)."""
        helper = self._helper
        assert helper is not None
        packed = json.dumps({"path": path, "limit": limit}).encode()
        answer: Optional[Dict[str, Any]] = None
        try:
            os.write(helper.requests, struct.pack("<I", len(packed)) + packed)
            answer = self._receive(helper)
        except OSError:
            answer = {}  # it has died: no word about the process that was asked for
        if not answer:
            self.close()
        return answer

    def _receive(self, helper: Process) -> Optional[Dict[str, Any]]:
        begun_s = time.monotonic()
        wait_s = NEXT_WAIT_S if self._held else WAIT_S
        data, size = bytearray(), None  # type: bytearray, Optional[int]
        while size is None or len(data) < 4 + size:
            left_s = begun_s + wait_s - time.monotonic()
            if left_s <= 0:
                if wait_s >= STARVED_WAIT_S or not _is_runnable(helper.pid):
                    return None
                wait_s += NEXT_WAIT_S
                continue
            if not select.select([helper.answers], [], [], left_s)[0]:
                continue
            part = os.read(helper.answers, 1 << 20)
            if not part:
                raise OSError("the helper has ended")
            data += part
            if len(data) >= 4:
                size = struct.unpack_from("<I", data)[0]
        answer: Dict[str, Any] = json.loads(bytes(data[4:]).decode("utf-8"))
        return answer

    def _leave_alone(self, pid: int, now_s: float, held: Optional[Held]) -> None:
        stat = proc.read_stat("/proc", pid)
        if stat is None:
            return
        again = held is not None and held.start_ticks == stat.start_ticks
        pause_s = self._leave_alone_s
        if again and held is not None:
            pause_s = min(held.pause_s * 2, LONGEST_LEAVE_ALONE_S)
        since_s = held.since_s if again and held is not None else now_s
        self._held[pid] = Held(since_s, now_s + pause_s, pause_s, stat.start_ticks)


def _serve(request: Dict[str, Any]) -> Dict[str, Any]:
    """Runs in the helper only."""
    data = proc.read_bytes(request["path"], request["limit"])
    return {"data": None if data is None else data.decode("latin-1")}


def waits_in_kernel(pid: int) -> bool:
    """Is a thread of it in state D: then it may hold the map."""
    try:
        tids = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return False
    stats = (proc.read_stat(f"/proc/{pid}/task", int(tid)) for tid in tids)
    return any(stat is not None and stat.state == "D" for stat in stats)


def _is_runnable(pid: int) -> bool:
    stat = proc.read_stat("/proc", pid)
    return stat is not None and stat.state == "R"


def _is_same(pid: int, held: Held) -> bool:
    stat = proc.read_stat("/proc", pid)
    return stat is not None and stat.start_ticks == held.start_ticks and stat.state not in "ZX"


def _name(pid: int) -> str:
    stat = proc.read_stat("/proc", pid)
    return f"{pid} ({stat.comm})" if stat is not None else str(pid)


READS = Reads()
"""Of this process; a forked one makes its own at its first read."""
