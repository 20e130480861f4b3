"""The engine beside the dashboard: two processes and one socket pair between them.

Down goes the newest snapshot, one JSON object a line; up come commands, one JSON object a line. A
dashboard that reads slowly misses snapshots and holds up nothing; when it is gone, the engine ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Any

import msgspec

from dflash_watch.errors import EXIT_UNKNOWN
from dflash_watch.model import Snapshot
from dflash_watch.outlet import Outlet

MAX_COMMAND_BYTES = 65536
MAX_COMPLAINT_BYTES = 8192
ENGINE_END_S, REPEAT_S = 1.5, 0.3
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
    """Commands until the end; what is none is passed over."""
    while True:
        try:
            line = lines.readline(MAX_COMMAND_BYTES)
        except OSError:
            return
        if not line:
            return
        try:
            command = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(command, dict) and isinstance(command.get("op"), str):
            yield command


def adopt(descriptor: int) -> socket.socket:
    """The socket inherited as that descriptor."""
    return socket.socket(fileno=descriptor)


class EngineProcess:
    """An engine process with the same command line, and our end of its socket (`link`).

    It has no terminal: nothing it prints can scribble over the dashboard, a question for a
    passphrase cannot steal its keys, and the terminal's signals reach only the dashboard.

    Args:
        words: command line without the program.
        environment: of the process.
    """

    def __init__(self, words: Sequence[str], environment: Mapping[str, str]) -> None:
        self.link, theirs = socket.socketpair()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed on leaving
        self.code = 0
        self.ended_first = False
        """It ended by itself, not because we hung up."""
        self.complaint = ""
        path = os.pathsep.join(filter(None, sys.path))
        with theirs:
            self._process = subprocess.Popen(
                [*ENGINE, *words, f"--publish-fd={theirs.fileno()}"],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                start_new_session=True,
                env={**environment, "PYTHONPATH": path},
            )

    def __enter__(self) -> EngineProcess:
        return self

    def __exit__(self, *_: object) -> None:
        """Hang up, wait a second, kill; read what it complained about."""
        with self.link, contextlib.suppress(OSError):
            self.link.shutdown(socket.SHUT_RDWR)  # also where a reader still holds the socket
        try:
            self.code = self._process.wait(ENGINE_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self.code = self._process.wait()
        with self._errors:
            self._errors.seek(0)
            told = self._errors.read()[-MAX_COMPLAINT_BYTES:]
        self.complaint = told.decode("utf-8", "replace")
        if self.code < 0:
            name = signal.Signals(-self.code).name
            self.complaint += f"dflash-watch: the engine of the dashboard was ended by {name}\n"
            self.code = EXIT_UNKNOWN

    @contextlib.contextmanager
    def ending_this_process(self) -> Iterator[None]:
        """Inside, SIGTERM is sent to this process when the engine ends by itself.

        Repeated, since the first may come before the dashboard listens.
        """
        leaving = threading.Event()

        def tell() -> None:
            self._process.wait()
            self.ended_first = not leaving.is_set()
            while not leaving.wait(REPEAT_S):
                os.kill(os.getpid(), signal.SIGTERM)

        before = signal.signal(signal.SIGTERM, lambda *_: None)
        threading.Thread(target=tell, name="engine-end", daemon=True).start()
        try:
            yield
        finally:
            leaving.set()
            signal.signal(signal.SIGTERM, before)
