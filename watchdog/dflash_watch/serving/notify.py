"""Telling systemd how the service is: a watchdog that is watched itself.

The sign of life is sent where a snapshot has come out of the engine, so it stops as soon as the
loop does, whatever other threads still do. Without NOTIFY_SOCKET nothing is sent.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Mapping

from dflash_watch.clock import Clock
from dflash_watch.model import Snapshot
from dflash_watch.readers.lines import printable

LONGEST_STATUS = 200


class ServiceManager:
    """A sink of snapshots that reports to whoever started this service.

    Args:
        environment: NOTIFY_SOCKET, and WATCHDOG_USEC with WATCHDOG_PID.
        clock: this machine's.
    """

    def __init__(self, environment: Mapping[str, str], clock: Clock) -> None:
        self._clock = clock
        self._address = _address(environment.get("NOTIFY_SOCKET", ""))
        self._every_s = _interval_s(environment)
        self._told_s = float("-inf")
        self._status: str | None = None

    def __call__(self, snapshot: Snapshot) -> None:
        """Ready with the first one; alive with each; the status when it has changed."""
        if self._address is None:
            return
        lines, status = [], status_line(snapshot)
        now_s = self._clock.monotonic_s()
        if self._status is None:
            lines.append("READY=1")
        if status != self._status:
            self._status = status
            lines.append(f"STATUS={status}")
        if self._every_s is not None and now_s - self._told_s >= self._every_s:
            self._told_s = now_s
            lines.append("WATCHDOG=1")
        if lines:
            self._send(lines)

    def stopping(self) -> None:
        """It ends on purpose."""
        self._send(["STOPPING=1"])

    def _send(self, lines: list[str]) -> None:
        if self._address is None:
            return
        # Whoever should listen may be busy or gone: that is no reason to wait or to end.
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as way:
            way.connect(self._address)
            way.send("\n".join(lines).encode(), socket.MSG_DONTWAIT)


def status_line(snapshot: Snapshot) -> str:
    """For `systemctl status`: verdict, run, failure."""
    name = f" [{snapshot.failure}]" if snapshot.names_failure else ""
    return printable(f"{snapshot.verdict.value.upper()} {snapshot.run}{name}")[:LONGEST_STATUS]


def _address(told: str) -> str | None:
    """A path, or a name without one (`@`)."""
    if told.startswith("/"):
        return told
    return f"\0{told[1:]}" if told.startswith("@") else None


def _interval_s(environment: Mapping[str, str]) -> float | None:
    """Half of what the manager waits for; None when it waits for nothing."""
    told, whose = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID", "")
    if not told.isdigit() or (whose and whose != str(os.getpid())):
        return None
    return int(told) / 2e6
