"""Lines on standard output that never hold up the watching."""

from __future__ import annotations

import logging
import select
import threading
from collections.abc import Callable, Iterable

from dflash_watch.commands.context import STDOUT, write_line
from dflash_watch.model import Snapshot
from dflash_watch.outlet import Outlet

LINES_THAT_MAY_WAIT = 1000
logger = logging.getLogger(__name__)


def is_unread(descriptor: int) -> bool:
    """It is a pipe or socket whose other end is closed, as after `| head -1`."""
    poll = select.poll()
    poll.register(descriptor, 0)
    return any(happened & (select.POLLERR | select.POLLHUP) for _, happened in poll.poll(0))


class LineSink:
    """Turns snapshots into lines and writes them in its own thread.

    Args:
        render: the lines a snapshot is worth, often none.
        stop: set when the reader is gone: nobody looks any more.
        has_colour: the lines are coloured by `render`.
        descriptor: where they go.
    """

    def __init__(
        self,
        render: Callable[[Snapshot], Iterable[str]],
        stop: threading.Event,
        *,
        has_colour: bool = False,
        descriptor: int = STDOUT,
    ) -> None:
        self._render, self._stop, self._has_colour = render, stop, has_colour
        self._descriptor = descriptor
        self._told = 0
        self._outlet: Outlet[str] = Outlet(
            "lines", self._write, capacity=LINES_THAT_MAY_WAIT, on_end=self._end
        )

    def __call__(self, snapshot: Snapshot) -> None:
        """Queue what this snapshot is worth; a reader that has gone is noticed without writing."""
        if is_unread(self._descriptor):
            self._stop.set()
        for line in self._render(snapshot):
            self._outlet.put(line)

    def close(self, timeout_s: float) -> None:
        """Let the last lines out."""
        self._outlet.close(timeout_s)

    def _write(self, line: str) -> None:
        left_out = self._outlet.dropped
        if left_out > self._told:
            logger.warning("%d lines left out: output was not read", left_out - self._told)
            self._told = left_out
        write_line(line, has_colour=self._has_colour, descriptor=self._descriptor)

    def _end(self, error: Exception) -> None:
        if not isinstance(error, BrokenPipeError):
            logger.warning("no lines any more: %s", error)
        self._stop.set()
