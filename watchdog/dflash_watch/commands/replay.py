"""`dflash-watch replay`: the same engine over a recording."""

from __future__ import annotations

import logging
import threading
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

from dflash_watch.actions import Actions
from dflash_watch.capture import open_capture
from dflash_watch.clock import Clock, SystemClock
from dflash_watch.commands.context import Context, incidents_dir, stop_on_signals
from dflash_watch.commands.incidents import choose, find_incidents
from dflash_watch.commands.notices import speak
from dflash_watch.commands.sinks import attach_sink, wants_dashboard
from dflash_watch.commands.values import parse_number
from dflash_watch.engine import Engine
from dflash_watch.errors import EXIT_OK
from dflash_watch.frame import Hello, Record
from dflash_watch.journal import note_nothing
from dflash_watch.live import Live
from dflash_watch.playbooks import load_playbooks

logger = logging.getLogger(__name__)
SCREEN_SPEED = 10.0
LONGEST_PAUSE_S = 5.0
CLOSE_S = 0.3


class Replay:
    """A source that plays records, at once or at a multiple of their own pace.

    Args:
        records: in order.
        clock: this machine's.
        speed: times real time; None plays as fast as they are read.
    """

    def __init__(self, records: Iterator[Record], clock: Clock, speed: float | None) -> None:
        self._records, self._clock, self._speed = records, clock, speed
        self._next: Record | None = None
        self._t: float | None = None
        self._due_s = clock.monotonic_s()

    def get(self, timeout_s: float) -> Record | None:
        """The next record when it is due, None when it is not yet; EOFError after the last."""
        if self._next is None:
            self._next = next(self._records, None)
            if self._next is None:
                raise EOFError
            self._due_s += self._pause_s(self._next)
        wait_s = self._due_s - self._clock.monotonic_s()
        if wait_s > 0:
            self._clock.sleep(min(wait_s, timeout_s))
            if wait_s > timeout_s:
                return None
        record, self._next = self._next, None
        return record

    def _pause_s(self, record: Record) -> float:
        if self._speed is None or isinstance(record, Hello):
            return 0.0
        before, self._t = self._t, record.t
        if before is None:
            return 0.0
        return min(max(record.t - before, 0.0) / self._speed, LONGEST_PAUSE_S)

    def request_stacks(self, pid: int, label: str, *, native: bool = False) -> None:
        """Nothing: a recording has the samples that were taken."""

    def retry_now(self) -> None:
        """Nothing: there is nothing to connect to."""

    def close(self) -> None:
        """Nothing to let go."""


def find_capture(word: str, folder: str | None) -> Path:
    """The recording meant: a path, else an incident as `incidents` names it, `last` among them.

    Raises:
        UsageError: no such path, and no incident of that name.
    """
    path, kept_in = Path(word), incidents_dir(folder)
    if path.exists() or path.name != word:
        return path
    kept = find_incidents(kept_in)
    if word != "last" and not any(word in one.name for one in kept):
        return path
    return choose(kept, word, kept_in)


def run(given: Namespace, context: Context) -> int:
    """Play it; 0.

    Raises:
        CaptureError: no recording, or a broken one; says where.
    """
    speed = None if given.speed is None else parse_number("--speed", given.speed, 0.1, 1000)
    header, records = open_capture(find_capture(given.capture, given.incidents))
    if wants_dashboard(given, context):
        return context.show(context.words)
    notices, stop = speak(), stop_on_signals()
    clock = SystemClock()
    if given.publish_fd is not None and speed is None:
        speed = SCREEN_SPEED
    actions = Actions(None, note_nothing, clock)
    source = Replay(records, clock, speed)
    engine = Engine(header.options, load_playbooks())
    live = Live(source, engine, clock, actions=actions, ticks=False)
    close_sink = attach_sink(live, given, stop, context, lossless=True)
    try:
        live.run(stop)
        for note in records.notes:
            logger.warning("%s", note)
        if given.publish_fd is not None:
            hold(stop)
    finally:
        close_sink(CLOSE_S)
        notices.finish(CLOSE_S)
    return EXIT_OK


def hold(stop: threading.Event) -> None:
    """Keep the last picture on the dashboard until the person leaves."""
    stop.wait()
