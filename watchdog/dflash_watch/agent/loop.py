"""The agent's life: hello, a frame every so often, answers to requests; ends when nobody listens.

Ends on the end of standard input, `stop`, the end of its allowed life, and when nobody takes what
it writes. It never waits for the reader: while that is slow, looks are left out and counted.
"""

from __future__ import annotations

import os
import select
import sys
import time
from typing import Any, Dict, List, Optional, Union

from dflash_watch.agent import AGENT_VERSION, PROTOCOL, PROTOCOL_MIN, proc
from dflash_watch.agent.hostlook import HostLook
from dflash_watch.agent.look import Look
from dflash_watch.agent.manners import be_modest
from dflash_watch.agent.rundir import boot_id
from dflash_watch.agent.stackjobs import StackJobs
from dflash_watch.agent.tools import Tools
from dflash_watch.agent.wire import Receiver, Sender, WireError

FASTEST_S, SLOWEST_S = 0.1, 60.0
LONGEST_LIFE_S = 7 * 86400.0
PATIENCE_S = 120.0
"""A reader that takes nothing for so long has gone, though its connection still stands."""


def clamp_pace(every_s: Any) -> float:
    """Seconds between frames within what is sensible; 1.0 for nonsense."""
    try:
        return min(max(float(every_s), FASTEST_S), SLOWEST_S)
    except (TypeError, ValueError):
        return 1.0


def life_s(config: Dict[str, Any]) -> float:
    """How long this agent may live."""
    return min(float(config.get("max_life_s") or 86400.0), LONGEST_LIFE_S)


def hello(root: str, code_sha256: str, tools: Dict[str, Optional[str]]) -> Dict[str, Any]:
    """`frame.Hello`: proves where the agent runs."""
    try:
        namespace: Optional[int] = os.stat(root + "/self/ns/pid").st_ino
    except OSError:
        namespace = None
    own = proc.read_stat(root, os.getpid())
    return {
        "type": "hello",
        "protocol": PROTOCOL,
        "protocol_min": PROTOCOL_MIN,
        "agent_version": AGENT_VERSION + ("+" + code_sha256[:12] if code_sha256 else ""),
        "code_sha256": code_sha256 or None,
        "python": sys.version.split()[0],
        "hostname": os.uname().nodename,
        "boot_id": boot_id(root),
        "pid_namespace": namespace,
        "agent_pid": os.getpid(),
        "agent_start_ticks": own.start_ticks if own is not None else None,
        "uid": os.getuid(),
        "ticks_per_s": proc.TICKS_PER_S,
        "machine": os.uname().machine,
        "tools": tools,
    }


Looks = Union[Look, HostLook]


class Loop:
    """One agent serving one watcher over two descriptors.

    Args:
        config: docs/frames.md, "Start".
        look: makes the frames.
        code_sha256: of the code that runs, hex; empty: not known.
        stdin: requests arrive here.
        stdout: records leave here.
    """

    def __init__(
        self, config: Dict[str, Any], look: Looks, code_sha256: str, stdin: int, stdout: int
    ) -> None:
        self._look, self._code_sha256 = look, code_sha256
        self._stdin, self._stdout = stdin, stdout
        self._sender = Sender(stdout, str(config["nonce"]))
        self._receiver = Receiver(stdin)
        self._tools = Tools()
        self._stacks = StackJobs()
        self._every_s = clamp_pace(config.get("every_s", 1.0))
        self._ends_s = time.monotonic() + life_s(config)
        self._left_out = 0
        self._patience_s = float(config.get("reader_patience_s") or PATIENCE_S)
        self._watcher_patience_s = float(config.get("watcher_patience_s") or LONGEST_LIFE_S)
        self._taken_s = self._heard_s = time.monotonic()
        self._stop = self._has_begun = False

    def run(self) -> str:
        """Serve until the end; says why it ended."""
        tools = {"py-spy": self._tools.find("py-spy")}
        self._sender.send(hello("/proc", self._code_sha256, tools))
        due_s = time.monotonic()
        try:
            while not self._stop:
                now_s = time.monotonic()
                if now_s >= self._ends_s:
                    return "end of its allowed life"
                if now_s >= due_s:
                    self._send_frame()
                    # A late frame does not make the next ones hurry: the pace starts anew.
                    due_s = max(due_s + self._every_s, time.monotonic() + self._every_s / 2)
                ended = self._wait(min(due_s, self._ends_s))
                if ended:
                    return "end of input"
                if time.monotonic() - self._heard_s > self._watcher_patience_s:
                    return f"no word from the watcher for {self._watcher_patience_s:.0f} s"
                due_s = min(due_s, time.monotonic() + self._every_s)
        except WireError as error:
            return str(error)
        finally:
            self._stacks.close()
            self._look.close()
        return "told to stop"

    def _send_frame(self) -> None:
        now_s = time.monotonic()
        if not self._sender.ready:
            self._left_out += 1
            if now_s - self._taken_s > self._patience_s:
                raise WireError(f"the reader has taken nothing for {self._patience_s:.0f} s")
            return
        self._taken_s = now_s
        frame = self._look.frame(self._left_out)
        if frame is not None:
            self._sender.send(frame)
        if not self._has_begun:
            self._has_begun = True
            self._look.begin_gpus()
            be_modest([os.getpid(), *self._look.children()])

    def _wait(self, until_s: float) -> bool:
        """Serve requests and finished stack samples until a moment; True: the input has ended."""
        reading: List[int] = [self._stdin, *self._stacks.descriptors()]
        writing = [] if self._sender.ready else [self._stdout]
        pause_s = max(0.0, min(until_s - time.monotonic(), self._stacks.next_deadline_s()))
        try:
            readable, writable, _ = select.select(reading, writing, [], pause_s)
        except InterruptedError:
            return False
        if writable:
            self._sender.push()
        for record, reply in self._stacks.collect(time.monotonic()):
            if record is not None:
                self._sender.send(record)
            self._sender.send(reply)
        if self._stdin not in readable:
            return False
        self._heard_s = time.monotonic()
        requests, ended = self._receiver.receive()
        for request, raw in requests:
            self._serve(request, raw)
        return ended

    def _serve(self, request: Dict[str, Any], raw: bytes) -> None:
        op, number = request.get("op"), request.get("id")
        error: Optional[str] = None
        if op == "stacks":
            error = self._start_stacks(request)
            if error is None:
                return  # answered when the sample is there
        elif op == "tool":
            error = self._tools.keep(
                str(request.get("name")), raw, str(request.get("sha256") or "")
            )
        elif op == "pace":
            self._every_s = clamp_pace(request.get("every_s"))
        elif op == "stop":
            self._stop = True
        elif op in self._look.ops:
            error = self._look.ops[op](request)
        elif op != "ping":
            error = f"unknown op {op!r}"
        self._sender.send(reply_to(number, error))

    def _start_stacks(self, request: Dict[str, Any]) -> Optional[str]:
        pid = request.get("pid")
        if not isinstance(pid, int) or pid <= 0:
            return f"stacks: pid expected, got {pid!r}"
        means = self._look.stack_means()._replace(
            pushed=self._tools.pushed("py-spy"),
            not_pushed=str(request.get("no_tool") or self._tools.problem or "")[:300] or None,
            can_push=request.get("can_push") is True,
            native=request.get("native") is True,
        )
        return self._stacks.start(request.get("id"), pid, str(request.get("label") or ""), means)


def reply_to(number: Any, error: Optional[str] = None) -> Dict[str, Any]:
    """A `reply` record."""
    reply: Dict[str, Any] = {"type": "reply", "id": number, "ok": error is None}
    if error is not None:
        reply["error"] = error
    return reply


def say(text: str) -> None:
    """A line for people, on standard error; nobody listening is no failure."""
    try:
        sys.stderr.write(f"dflash-watch agent: {text}\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        return
