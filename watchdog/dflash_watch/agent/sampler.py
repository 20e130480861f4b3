"""Runs a stack sampler: a process group of its own, under a kill timer, with bounded output.

Whatever ends us ends the sampler too: one that holds threads of the run stopped must never be left
alone with them. Runs in a disposable child only.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from typing import Callable, Dict, List, NamedTuple, Optional, Tuple

from dflash_watch.agent import libc
from dflash_watch.agent.forked import PR_SET_PDEATHSIG

MAX_ERROR_BYTES = 8192
KILLED_S = 1.0
"""A killed sampler is waited for so long."""
CLEAN = {
    "LC_ALL": "C.UTF-8",
    "PATH": "/usr/bin:/bin",
    "NO_COLOR": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
}
"""Environment of a sampler: nothing of ours, and it leaves no byte code behind."""
User = Tuple[int, int]


class Ran(NamedTuple):
    """How a sampler ended; its output has gone to `take`."""

    code: Optional[int]
    """None: it was killed, or never ran."""
    said: str
    """Its standard error, or why it never ran."""
    problem: Optional[str] = None
    """`time`: the kill timer; `size`: more output than is taken; `start`: it could not start."""


def run_sampler(
    command: List[str],
    limit_s: float,
    take: Callable[[bytes], bool],
    user: Optional[User] = None,
) -> Ran:
    """Run to the end or to the limit.

    Args:
        command: argument list; no shell sees it.
        limit_s: then its whole group is killed.
        take: gets standard output as it comes; False: enough, end it.
        user: uid and gid to become; None stays what we are.
    """
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=CLEAN,
            start_new_session=True,
            preexec_fn=_guest(user),  # noqa: PLW1509 - this process has one thread
        )
    except (OSError, subprocess.SubprocessError) as error:
        return Ran(None, str(error), "start")
    said: List[bytes] = []
    try:
        problem = _follow(process, time.monotonic() + limit_s, take, said)
    finally:
        ended = _end(process)
    text = b"".join(said).decode("utf-8", "replace").strip()
    if not ended:
        text += " (killed, does not end)"
    return Ran(process.returncode if problem is None else None, text, problem)


def _guest(user: Optional[User]) -> Callable[[], None]:
    """What the sampler's process does before it becomes the sampler."""
    prctl, parent = libc.function("prctl"), os.getpid()

    def become() -> None:
        if user is not None:
            os.setgroups([])
            os.setgid(user[1])
            os.setuid(user[0])
        if prctl is not None:
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # a change of user clears it
        if os.getppid() != parent:
            os._exit(1)

    return become


def _follow(
    process: subprocess.Popen[bytes],
    end_s: float,
    take: Callable[[bytes], bool],
    said: List[bytes],
) -> Optional[str]:
    """Both of its outputs until they end; says what cut it short."""
    assert process.stdout is not None
    assert process.stderr is not None
    out, error = process.stdout.fileno(), process.stderr.fileno()
    listening: Dict[int, bool] = {out: True, error: True}
    room = MAX_ERROR_BYTES
    while listening:
        left_s = end_s - time.monotonic()
        ready = select.select(list(listening), [], [], max(left_s, 0.0))[0] if left_s > 0 else []
        if not ready:
            return "time"
        for descriptor in ready:
            part = os.read(descriptor, 1 << 16)
            if not part:
                del listening[descriptor]
            elif descriptor == error:
                said.append(part[:room])
                room -= len(said[-1])
            elif not take(part):
                return "size"
    try:
        process.wait(max(end_s - time.monotonic(), 0.05))
    except subprocess.TimeoutExpired:
        return "time"
    return None


def _end(process: subprocess.Popen[bytes]) -> bool:
    """Kill its group, if it still runs, and close its pipes; whether it has ended."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()
    try:
        process.wait(KILLED_S)
    except subprocess.TimeoutExpired:
        return False
    return True
