"""A forked process that answers requests over two pipes; what the child side of it does.

Nothing of the agent's own life goes on in it: no pipe to the watcher, no signal handler, and the
kernel ends it with the agent.
"""

from __future__ import annotations

import json
import os
import signal
import struct
from typing import Any, Callable, Dict, List, NamedTuple, NoReturn, Optional, Tuple

from dflash_watch.agent import libc

Serve = Callable[[Dict[str, Any]], Dict[str, Any]]
PR_SET_PDEATHSIG = 1


class Process(NamedTuple):
    """A forked child: its number and our ends of its two pipes."""

    pid: int
    requests: int
    answers: int


def fork(serve: Serve) -> Process:
    """A child that answers each request with `serve(request)` until its input ends.

    Raises:
        OSError: no process or descriptor is to be had.
    """
    opened: List[int] = []
    parent = os.getpid()
    try:
        opened += os.pipe()
        opened += os.pipe()
        pid = os.fork()
    except OSError:
        for descriptor in opened:
            os.close(descriptor)
        raise
    child_in, requests, answers, child_out = opened
    if pid == 0:
        _be_child(serve, child_in, child_out, parent)
    os.close(child_in)
    os.close(child_out)
    os.set_blocking(requests, False)
    os.set_blocking(answers, False)
    return Process(pid, requests, answers)


def _be_child(serve: Serve, child_in: int, child_out: int, parent: int) -> NoReturn:
    """Never returns: whatever happens, the child must not run the agent's own code."""
    try:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        _die_with_parent(parent)
        _close_all_but(child_in, child_out)
        _answer_requests(serve, child_in, child_out)
    finally:
        os._exit(0)


def _die_with_parent(parent: int) -> None:
    """The kernel ends this child with the agent, also out of a call that sleeps."""
    prctl = libc.function("prctl")
    if prctl is not None:  # else it ends with its input, when no call holds it
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)


def _close_all_but(*keep: int) -> None:
    """A stuck child must hold no pipe to the watcher: a link could not be closed then."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1):
        os.dup2(nothing, descriptor)
    for name in os.listdir("/proc/self/fd"):
        if int(name) <= 2 or int(name) in keep:
            continue
        try:
            # The agent's own code (and a pushed tool) lies in memory files: later imports need it.
            if not os.readlink("/proc/self/fd/" + name).startswith("/memfd:"):
                os.close(int(name))
        except OSError:
            continue  # the listing's own descriptor


def _answer_requests(serve: Serve, child_in: int, child_out: int) -> None:
    while True:
        head = _read_exactly(child_in, 4)
        body = _read_exactly(child_in, struct.unpack("<I", head)[0]) if head else None
        if body is None:
            return
        try:
            answer = serve(json.loads(body.decode("utf-8")))
        except Exception as error:  # noqa: BLE001 - the runner of sources
            answer = {"error": f"{type(error).__name__}: {error}"}
        packed = json.dumps(answer).encode("utf-8", "replace")
        packed = struct.pack("<I", len(packed)) + packed
        while packed:
            packed = packed[os.write(child_out, packed) :]


def _read_exactly(descriptor: int, count: int) -> Optional[bytes]:
    data = b""
    while len(data) < count:
        part = os.read(descriptor, count - len(data))
        if not part:
            return None
        data += part
    return data


def has_ended(pid: int) -> Tuple[bool, int]:
    """Whether a child has ended, taking note of it, and its wait status."""
    try:
        done, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return True, 0
    return done != 0, status
