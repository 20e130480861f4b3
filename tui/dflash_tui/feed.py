"""Where snapshots come from: the seam between the engine's process and the screen.

The engine writes one snapshot a line as JSON; a daemon thread keeps the newest, so that no side
waits for the other: a terminal that stops reading does not fill the engine's pipe.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Any, Final, Protocol

import msgspec
from dflash_watch.clock import Clock, SystemClock
from dflash_watch.model import Link, Severity, Snapshot, Verdict

LONGEST_LINE: Final = 64 * 2**20
REOPEN_S: Final = 1.0
"""Between two attempts to come back to a server."""


class Feed(Protocol):
    """Newest snapshot out, commands in; no call waits."""

    def latest(self) -> Snapshot | None:
        """The newest snapshot; None before the first."""

    def send(self, command: dict[str, Any]) -> None:
        """Hands a command to the engine: `{"op": "retry"}`, `{"op": "stacks"}`."""

    def close(self) -> None:
        """No more of either."""


def blinded(snapshot: Snapshot | None, reason: str, wall_s: float) -> Snapshot:
    """What may be shown once the watcher itself is gone: the last figures, and no verdict.

    An end that was seen (finished, crashed) stays.
    """
    link = Link(state="closed", reason=reason, since_t=wall_s)
    if snapshot is None:
        return Snapshot(
            t=wall_s,
            run="",
            verdict=Verdict.BLIND,
            since_t=wall_s,
            failure="watch-lost",
            severity=Severity.WARNING,
            summary=reason,
            link=link,
        )
    if snapshot.verdict in {Verdict.FINISHED, Verdict.CRASHED}:
        return snapshot
    last = snapshot.verdict if snapshot.verdict is not Verdict.BLIND else snapshot.last_verdict
    return msgspec.structs.replace(
        snapshot,
        verdict=Verdict.BLIND,
        last_verdict=last,
        since_t=snapshot.data_t or snapshot.t,
        failure="watch-lost",
        subject="link",
        severity=Severity.WARNING,
        summary=reason,
        evidence=(),
        next=(_way_back(snapshot),),
        link=link,
    )


def _way_back(snapshot: Snapshot) -> str:
    if snapshot.serving is None:
        return "start the watcher again"
    name = snapshot.serving.name
    return f"start watcher {name} again (dflash-watch serve): this dashboard comes back"


class SocketFeed:
    """Snapshots from the engine's socket, one JSON object a line; commands the same way back.

    Args:
        link: connected to the engine.
        clock: for the moment at which the engine went.
        reopen: connects anew once the connection is lost; None while it cannot. Without it a loss
            is the end.
    """

    def __init__(
        self,
        link: socket.socket,
        clock: Clock | None = None,
        reopen: Callable[[], socket.socket | None] | None = None,
    ) -> None:
        self._link, self._clock, self._reopen = link, clock or SystemClock(), reopen
        self._newest: Snapshot | None = None
        self._closed = threading.Event()
        self._changing = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="snapshots", daemon=True)
        self._thread.start()

    def latest(self) -> Snapshot | None:
        """The newest snapshot; blind once the engine is gone; None before the first."""
        return self._newest

    def send(self, command: dict[str, Any]) -> None:
        """Sends the command if the engine takes it at once; else it is dropped."""
        line = msgspec.json.encode(command) + b"\n"
        with contextlib.suppress(OSError):  # the reader reports that the engine is gone
            self._link.send(line, socket.MSG_DONTWAIT)

    def close(self) -> None:
        """Hangs up; the engine sees the end of its reader."""
        with self._changing:
            self._closed.set()
            with contextlib.suppress(OSError):  # hung up already
                self._link.shutdown(socket.SHUT_RDWR)
            self._link.close()

    def _run(self) -> None:
        while not self._closed.is_set():
            self._read()
            if self._reopen is None:
                return
            while not self._closed.wait(REOPEN_S):
                if (link := self._reopen()) is not None:
                    self._take(link)
                    break

    def _take(self, link: socket.socket) -> None:
        """The new connection in place of the old one, unless all is over."""
        with self._changing:
            if self._closed.is_set():
                link.close()
                return
            self._link.close()
            self._link = link

    def _read(self) -> None:
        decoder = msgspec.json.Decoder(Snapshot)
        pending = bytearray()
        while not self._closed.is_set():
            try:
                chunk = self._link.recv(1 << 18)
            except OSError as error:
                return self._lose(f"the watcher's socket broke: {error.strerror}")
            if not chunk:
                return self._lose("the watcher process has ended")
            pending += chunk
            end = pending.rfind(b"\n")
            if end >= 0:
                newest = bytes(pending[pending.rfind(b"\n", 0, end) + 1 : end])
                del pending[: end + 1]
                if not self._decode(decoder, newest):
                    return None
            if len(pending) > LONGEST_LINE:
                return self._lose("the watcher sends no line end")
        return None

    def _decode(self, decoder: msgspec.json.Decoder[Snapshot], line: bytes) -> bool:
        try:
            self._newest = decoder.decode(line)
        except (msgspec.DecodeError, RecursionError) as error:
            self._lose(f"the watcher sends what this dashboard cannot read: {error}")
            return False
        return True

    def _lose(self, reason: str) -> None:
        if not self._closed.is_set():
            self._newest = blinded(self._newest, reason, self._clock.wall_s())
