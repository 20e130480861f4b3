"""Commands on this machine."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from typing import IO

from dflash_watch.transport.base import Reason, TransportError
from dflash_watch.transport.pump import Pump, Tail
from dflash_watch.transport.quoting import refuse_nul

_CHUNK = 65536
_MOMENT_S = 0.2


class LocalHost:
    """This machine."""

    def open(self, argv: Sequence[str], timeout_s: float) -> LocalStream:
        """Start a command in a session of its own; starting takes no time here."""
        del timeout_s
        return LocalStream(start(argv))

    def trouble(self, timeout_s: float) -> None:
        """This machine always answers."""
        del timeout_s

    def close(self) -> None:
        """Nothing is held."""


def start(argv: Sequence[str]) -> subprocess.Popen[bytes]:
    """A child process in a session of its own, with three pipes.

    Raises:
        TransportError: there is no such program, or it cannot be run.
        UsageError: an argument holds a NUL.
    """
    refuse_nul(argv)
    pipe = subprocess.PIPE
    try:
        return subprocess.Popen(
            list(argv), stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
        )
    except (FileNotFoundError, NotADirectoryError) as error:
        raise TransportError(
            Reason.ENTRY_FAILED,
            f"{argv[0]}: no such program on this machine",
            hint="is it installed, and on PATH?",
        ) from error
    except OSError as error:
        raise TransportError(
            Reason.ENTRY_FAILED, f"{argv[0]}: cannot be started: {error.strerror}"
        ) from error


class LocalStream:
    """A child process and its three pipes."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        if process.stdin is None or process.stdout is None or process.stderr is None:
            raise ValueError("a stream needs all three pipes")
        self._process, self._stdin = process, process.stdin
        os.set_blocking(self._stdin.fileno(), False)
        self._out = Pump(_reader(process.stdout), f"stdout-{process.pid}")
        self._err = Tail(_reader(process.stderr), f"stderr-{process.pid}")

    def send(self, data: bytes) -> int:
        """Bytes taken now."""
        try:
            if not select.select([], [self._stdin], [], _MOMENT_S)[1]:
                return 0
            return os.write(self._stdin.fileno(), data[:_CHUNK])
        except BlockingIOError:
            return 0
        except (OSError, ValueError) as error:
            raise TransportError(Reason.LOST, "the command no longer reads its input") from error

    def wake(self) -> None:
        """Let `receive` return."""
        self._out.wake()

    def end_input(self) -> None:
        """Close its input."""
        self._stdin.close()

    def receive(self, timeout_s: float) -> bytes | None:
        """Next bytes of output."""
        return self._out.take(timeout_s)

    def error_text(self) -> str:
        """Newest standard error, all of it if the command ended."""
        return self._err.text(wait_s=_MOMENT_S if self.status() is not None else 0.0)

    def status(self) -> int | None:
        """Exit status; 128 + N after signal N, as a shell says it."""
        code = self._process.poll()
        return 128 - code if code is not None and code < 0 else code

    def close(self) -> None:
        """End of input, then SIGTERM, then SIGKILL to its group, within 0.8 s."""
        self._stdin.close()
        for wait_s, number in ((0.4, signal.SIGTERM), (0.2, signal.SIGKILL), (0.2, None)):
            try:
                self._process.wait(wait_s)
                break
            except subprocess.TimeoutExpired:
                if number is None:  # in state D: reaped whenever it comes out of it
                    threading.Thread(target=self._process.wait, daemon=True).start()
                else:
                    self._kill(number)
        self._out.stop()

    def _kill(self, number: signal.Signals) -> None:
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:  # it ended in between
            return


def _reader(pipe: IO[bytes]) -> Callable[[], bytes]:
    """Reads what is there; closes its own end at the end, since only it may."""

    def read() -> bytes:
        data = os.read(pipe.fileno(), _CHUNK)
        if not data:
            pipe.close()
        return data

    return read
