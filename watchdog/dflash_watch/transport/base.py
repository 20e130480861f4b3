"""What every transport is: a host that starts commands, and the streams of one command.

Nothing here waits without a limit, and nothing that goes wrong here says anything about the run.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

from dflash_watch.errors import LinkError


class Reason(StrEnum):
    """Why there is no way, or no more."""

    UNKNOWN_HOST = "unknown-host"
    REFUSED = "refused"
    UNREACHABLE = "unreachable"
    TIMEOUT = "timeout"
    HOST_KEY_UNKNOWN = "host-key-unknown"
    HOST_KEY_CHANGED = "host-key-changed"
    HOST_KEY_REVOKED = "host-key-revoked"
    NO_COMMON_ALGORITHM = "no-common-algorithm"
    AUTH_REFUSED = "auth-refused"
    SESSION_REFUSED = "session-refused"
    CONTAINER_MISSING = "container-missing"
    CONTAINER_STOPPED = "container-stopped"
    CONTAINER_FROZEN = "container-frozen"
    NO_PYTHON = "no-python"
    ENTRY_FAILED = "entry-failed"
    AGENT_FAILED = "agent-failed"
    LOST = "lost"


PERMANENT = frozenset(Reason) - {
    Reason.REFUSED,
    Reason.UNREACHABLE,
    Reason.TIMEOUT,
    Reason.SESSION_REFUSED,
    Reason.CONTAINER_FROZEN,
    Reason.LOST,
}
"""Reasons that trying again in a few seconds does not cure."""


class TransportError(LinkError):
    """The way is broken, with its class; `permanent` follows from the class."""

    def __init__(self, reason: Reason, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint, permanent=reason in PERMANENT)
        self.reason = reason


STATUS_S = 0.5
"""An exit status that has not come so long after the end of output will not come."""


class Reply(NamedTuple):
    """What a short command said; `status` None: killed, lost or out of time: no answer."""

    status: int | None
    out: str
    err: str


def plain(text: str) -> str:
    """One line that a screen takes: strangers' control characters become `?`."""
    return "".join(char if char.isprintable() else "?" for char in text)


class Stream(Protocol):
    """One running command."""

    def send(self, data: bytes) -> int:
        """Bytes of `data` taken now, 0 if there was no room within a moment.

        Raises:
            TransportError: nobody reads any more.
        """

    def wake(self) -> None:
        """Let a `receive` that waits in another thread return at once."""

    def end_input(self) -> None:
        """Let the command see the end of its input."""

    def receive(self, timeout_s: float) -> bytes | None:
        """Next bytes of its output; None if none came in time, empty at the end."""

    def error_text(self) -> str:
        """Newest 8 KiB of its standard error."""

    def status(self) -> int | None:
        """Exit status once known; None for running, killed by the loss of the link, or not told."""

    def close(self) -> None:
        """End it; takes under a second whatever the other side does."""


class Host(Protocol):
    """A machine, or the inside of a prefix, where commands can be started."""

    def open(self, argv: Sequence[str], timeout_s: float) -> Stream:
        """Start a command.

        Raises:
            TransportError: it cannot be started, or not in time.
        """

    def trouble(self, timeout_s: float) -> TransportError | None:
        """Look at the way itself: None if it answers, else what is wrong with it."""

    def close(self) -> None:
        """Let go of it; takes under a second whatever the other side does."""


def run(host: Host, argv: Sequence[str], timeout_s: float, max_bytes: int = 1 << 20) -> Reply:
    """A short command with empty input, bounded in time and in output.

    Raises:
        TransportError: it cannot be started.
    """
    deadline = time.monotonic() + timeout_s
    stream = host.open(argv, timeout_s)
    out = bytearray()
    try:
        stream.end_input()
        while (left := deadline - time.monotonic()) > 0 and len(out) < max_bytes:
            data = stream.receive(left)
            if data == b"":
                status = status_soon(stream, STATUS_S)
                return Reply(
                    status=status, out=out.decode(errors="replace"), err=stream.error_text()
                )
            out += data or b""
        return Reply(status=None, out=out.decode(errors="replace"), err=stream.error_text())
    finally:
        stream.close()


def status_soon(stream: Stream, wait_s: float) -> int | None:
    """The status, which follows the end of output a moment later; None if it does not come."""
    deadline = time.monotonic() + wait_s
    while (status := stream.status()) is None and time.monotonic() < deadline:
        time.sleep(0.005)
    return status
