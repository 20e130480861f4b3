"""The engine beside the dashboard: two processes and one socket pair between them.

Down goes the newest snapshot, one JSON object a line; up come commands, one JSON object a line. A
dashboard that reads slowly misses snapshots and holds up nothing; when it is gone, the engine ends.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import msgspec

from dflash_watch.model import Snapshot
from dflash_watch.outlet import Outlet

MAX_COMMAND_BYTES = 65536
ENGINE = (sys.executable, "-P", "-m", "dflash_watch.cli")
_ENCODER = msgspec.json.Encoder()


class Publisher:
    """The engine's end of the socket.

    Args:
        link: the connected socket; owned from here on.
        on_command: called from a thread with each command, e.g. `{"op": "stacks"}`.
        on_gone: called once from a thread when the other end is closed.
    """

    def __init__(
        self,
        link: socket.socket,
        on_command: Callable[[Mapping[str, Any]], None],
        on_gone: Callable[[], None],
    ) -> None:
        self._link, self._on_command, self._on_gone = link, on_command, on_gone
        link.settimeout(None)
        self._outlet: Outlet[Snapshot] = Outlet("publish", self._send, capacity=1)
        self._reader = threading.Thread(target=self._read, name="commands", daemon=True)
        self._reader.start()

    def __call__(self, snapshot: Snapshot) -> None:
        """Hand over the newest snapshot; one that still waits is forgotten."""
        self._outlet.put(snapshot)

    def close(self, timeout_s: float) -> None:
        """Send what waits, then hang up."""
        self._outlet.close(timeout_s)
        with self._link:
            try:
                self._link.shutdown(socket.SHUT_RDWR)
            except OSError:
                return  # the other end was faster

    def _send(self, snapshot: Snapshot) -> None:
        self._link.sendall(_ENCODER.encode(snapshot) + b"\n")

    def _read(self) -> None:
        with self._link.makefile("rb") as lines:
            for command in read_commands(lines):
                self._on_command(command)
        self._on_gone()


def read_commands(lines: IO[bytes]) -> Iterator[Mapping[str, Any]]:
    """Commands until the end; what is no JSON object is passed over."""
    while True:
        try:
            line = lines.readline(MAX_COMMAND_BYTES)
        except OSError:
            return
        if not line:
            return
        try:
            command = json.loads(line)
        except ValueError:
            continue
        if isinstance(command, dict):
            yield command


def adopt(descriptor: int) -> socket.socket:
    """The socket inherited as that descriptor."""
    return socket.socket(fileno=descriptor)


def start_engine(
    argv: Sequence[str], log: Path, environment: Mapping[str, str]
) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """An engine process with the same command line, and our end of its socket.

    It has no terminal: nothing it prints can scribble over the dashboard, a question for a
    passphrase cannot steal its keys, and the terminal's signals reach only the dashboard.

    Args:
        argv: command line without the program.
        log: file that takes its standard error.
        environment: of the process.
    """
    ours, theirs = socket.socketpair()
    with theirs, log.open("wb") as errors:
        process = subprocess.Popen(
            [*ENGINE, *argv, f"--publish-fd={theirs.fileno()}"],
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
            env={**environment, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
    return process, ours


def end_engine(process: subprocess.Popen[bytes], timeout_s: float) -> int:
    """Its exit code; asked to end if it has not, killed if it does not."""
    try:
        return process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()
