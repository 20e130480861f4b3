"""Disposable child processes for everything that can block for ever.

A source that may hang (a driver call, a dead mount) runs in a child, forked from the agent. The
agent asks, goes on, and collects the answer when it is there. A child that does not answer is
described (state, kernel function), killed once, never waited for, and never has a sibling: a new
one is made only when the old one has ended, after a pause that doubles.
"""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import struct
import time
from typing import Any, Dict, List, Optional

from dflash_watch.agent import proc
from dflash_watch.agent.forked import Process, Serve, fork, has_ended

KILL_AFTER_DEADLINES = 3.0
KERNEL_FUNCTIONS = 4
FIRST_PAUSE_S, LONGEST_PAUSE_S = 2.0, 30.0
STARVED_TICKS = proc.TICKS_PER_S
"""CPU time since the question below which a runnable child has not had its turn: no call hangs."""
STARVED_DEADLINES = 15.0
"""For so long at most."""


class Child:
    """One source behind a child: ask, collect later, explain silence.

    Args:
        name: for people: what is being asked, as in "nvidia driver".
        serve: answers one request; runs in the child only, may keep state there.
        deadline_s: silence that counts as stuck; the first answer of a child gets three times that.
    """

    def __init__(self, name: str, serve: Serve, deadline_s: float) -> None:
        self._name, self._serve, self._deadline_s = name, serve, deadline_s
        self._process: Optional[Process] = None
        self._buffer = b""
        self._asked_s: Optional[float] = None
        self._asked_ticks = 0
        self._answered_once = False
        self._killed = False
        self._pause_s = FIRST_PAUSE_S
        self._start_at_s = 0.0
        self._problem: Optional[str] = None
        self._silent_since_s: Optional[float] = None
        self._ending: List[int] = []
        self.cannot_start = False
        """No process can be had: a limit of processes is reached."""

    @property
    def pid(self) -> Optional[int]:
        """The child's process, stuck or not."""
        return self._process.pid if self._process else None

    @property
    def answer_descriptor(self) -> Optional[int]:
        """Readable when an answer has come."""
        return self._process.answers if self._process else None

    @property
    def is_fresh(self) -> bool:
        """The next request goes to a child that has not answered yet."""
        return self._process is None or not self._answered_once

    def ask(self, request: Dict[str, Any], now_s: float) -> bool:
        """Send a request unless one is unanswered; starts the child when there is none.

        Returns:
            Whether it was sent.
        """
        self._reap(now_s)
        if self._asked_s is not None or (self._process is None and now_s < self._start_at_s):
            return False
        try:
            if self._process is None:
                self._start()
            packed = json.dumps(request).encode("utf-8", "replace")
            assert self._process is not None
            os.write(self._process.requests, struct.pack("<I", len(packed)) + packed)
        except OSError as error:
            self.cannot_start = self._process is None
            self._problem = f"{self._name}: cannot ask: {error.strerror}"
            if self.cannot_start and error.errno == errno.EAGAIN:
                self._problem = f"{self._name}: no process can be started (limit of processes)"
            return False
        self._asked_s, self._asked_ticks = now_s, self._ticks()
        return True

    def collect(self, now_s: float, wait_s: float) -> Optional[Dict[str, Any]]:
        """The answer, if it is there within `wait_s`; at most one a request."""
        if self._process is None or self._asked_s is None:
            self._reap(now_s)
            return None
        ended, end_s = False, time.monotonic() + wait_s
        while not ended and not self._is_whole() and (left_s := end_s - time.monotonic()) > 0:
            # A long answer comes in pieces, of what a pipe holds.
            select.select([self._process.answers], [], [], left_s)
            ended = self._take_pieces(self._process.answers)
        ended = ended or self._take_pieces(self._process.answers)
        if not self._is_whole():
            self._reap(now_s) if ended else self._watch(now_s)
            return None
        size = struct.unpack("<I", self._buffer[:4])[0]
        answer: Dict[str, Any] = json.loads(self._buffer[4 : 4 + size].decode("utf-8"))
        self._buffer = self._buffer[4 + size :]
        self._asked_s, self._answered_once, self._problem = None, True, None
        self._silent_since_s, self._pause_s, self._killed = None, FIRST_PAUSE_S, False
        return answer

    def _take_pieces(self, answers: int) -> bool:
        """Keep what has come; True when the child's end of the pipe is closed."""
        try:
            while True:
                piece = os.read(answers, 1 << 20)
                if not piece:
                    return True
                self._buffer += piece
        except BlockingIOError:
            return False

    def _is_whole(self) -> bool:
        size = len(self._buffer)
        return size >= 4 and size >= 4 + int(struct.unpack("<I", self._buffer[:4])[0])

    def gap(self, now_s: float) -> Optional[Dict[str, Any]]:
        """Why there is no answer, as `reason` and `since_s`; None while all is well."""
        if self._problem is None:
            return None
        since = self._silent_since_s
        return {
            "reason": self._problem,
            "since_s": None if since is None else round(now_s - since, 1),
        }

    def tend(self, now_s: float) -> None:
        """Take note of children that have ended; cheap, for every frame."""
        self._reap(now_s)

    def close(self) -> None:
        """End the child without waiting for it."""
        if self._process is not None:
            self._kill()
            self._ending.append(self._process.pid)
            self._forget()

    def _start(self) -> None:
        self._process = fork(self._serve)
        self.cannot_start = False
        self._buffer, self._answered_once, self._killed = b"", False, False

    def _watch(self, now_s: float) -> None:
        """No answer yet: once that is too long say what the child is doing, later kill it."""
        if self._asked_s is None or self._process is None:
            return
        silent_s = now_s - self._asked_s
        deadline_s = self._deadline_s * (1.0 if self._answered_once else 3.0)
        if silent_s < deadline_s or self._is_starved(silent_s):
            return
        self._silent_since_s = (
            self._asked_s if self._silent_since_s is None else self._silent_since_s
        )
        self._problem = describe_silence(
            self._name, self._process.pid, now_s - self._silent_since_s, killed=self._killed
        )
        if silent_s >= deadline_s * KILL_AFTER_DEADLINES and not self._killed:
            self._kill()
        self._reap(now_s)

    def _is_starved(self, silent_s: float) -> bool:
        """It waits for a core of a busy machine (the agent yields to everybody), not for a call."""
        stat = proc.read_stat("/proc", self._process.pid) if self._process is not None else None
        if stat is None or stat.state != "R" or silent_s > STARVED_DEADLINES * self._deadline_s:
            return False
        return stat.cpu_ticks - self._asked_ticks < STARVED_TICKS

    def _ticks(self) -> int:
        stat = proc.read_stat("/proc", self._process.pid) if self._process is not None else None
        return stat.cpu_ticks if stat is not None else 0

    def _reap(self, now_s: float) -> None:
        self._ending = [pid for pid in self._ending if not has_ended(pid)[0]]
        if self._process is None:
            return
        ended, status = has_ended(self._process.pid)
        if not ended:
            return
        if not self._killed:
            how = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else "without an answer"
            self._problem = f"{self._name}: the process that asks it ended ({how})"
        self._silent_since_s = now_s if self._silent_since_s is None else self._silent_since_s
        self._start_at_s = now_s + self._pause_s
        self._pause_s = min(self._pause_s * 2, LONGEST_PAUSE_S)
        self._forget()

    def _kill(self) -> None:
        assert self._process is not None
        self._killed = True
        try:
            os.kill(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return

    def _forget(self) -> None:
        assert self._process is not None
        os.close(self._process.requests)
        os.close(self._process.answers)
        self._process, self._asked_s = None, None


def describe_silence(name: str, pid: int, silent_s: float, *, killed: bool = False) -> str:
    """What a silent child is doing: its state and the kernel function it sleeps in."""
    stat = proc.read_stat("/proc", pid)
    wchan = (proc.read_text(f"/proc/{pid}/wchan", 128) or "").strip()
    state = stat.state if stat else "gone"
    place = f" in {wchan}" if wchan not in ("", "0") else ""
    held = proc.kernel_functions(f"/proc/{pid}/stack", KERNEL_FUNCTIONS) if state == "D" else []
    place += f" (kernel: {' < '.join(held)})" if held else ""
    text = f"{name}: no answer for {silent_s:.0f} s, the call is in state {state}{place}"
    return text + ("; killed, does not end" if killed and state not in ("gone", "Z") else "")


def cpu_ticks(pids: List[int]) -> int:
    """What these living processes have used, in ticks."""
    stats = [proc.read_stat("/proc", pid) for pid in pids]
    return sum(stat.cpu_ticks for stat in stats if stat is not None)
