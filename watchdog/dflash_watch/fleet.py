"""Many runs in one process: each with its own session, engine and actions, none in another's way.

A thread a run drives its loop. Whatever goes wrong with one (no way to it, a defect of ours) is
that run's own row, said there, and tried again later; the others never notice.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

from dflash_watch.clock import Clock
from dflash_watch.errors import WatchError
from dflash_watch.live import Live
from dflash_watch.model import Snapshot
from dflash_watch.render.fleettable import Row

APART_S = 0.2
"""Between the starts: logging in costs more than watching, and looks then fall apart in time."""
AGAIN_S, RARELY_S = 60.0, 900.0
"""After a run could not be watched at all: its container may have started meanwhile. Twice as long
after each failure, so that a refused login is not tried a thousand times a day."""
END_S = 3.0
logger = logging.getLogger(__name__)


class Watched(NamedTuple):
    """One run of a fleet."""

    name: str
    where: str
    """The way there, as drawn."""
    open: Callable[[], AbstractContextManager[Live]]
    """A loop over it, ready to run; may raise a WatchError."""


Tell = Callable[[Row], None]
Until = Callable[[Live], bool]


class Fleet:
    """Watches all of them until told to stop.

    Args:
        runs: at least one; names differ.
        clock: this machine's.
        tell: takes the row of a run whenever something came from it; called from the thread of that
            run, must not block.
        until: makes, for each run, what ends its loop; None for none.
    """

    def __init__(
        self,
        runs: Sequence[Watched],
        clock: Clock,
        tell: Tell,
        until: Callable[[], Until] | None = None,
    ) -> None:
        self._runs, self._clock, self._tell, self._until = runs, clock, tell, until
        self._rows = {one.name: Row(name=one.name, where=one.where) for one in runs}
        self._lock = threading.Lock()
        self._stop, self._progress = threading.Event(), threading.Condition()

    def rows(self) -> list[Row]:
        """One a run, in the order they were given."""
        with self._lock:
            return [self._rows[one.name] for one in self._runs]

    def run(self, stop: threading.Event) -> None:
        """Returns when `stop` is set or every run's loop is over; agents have ended then."""
        threads = []
        try:
            for one in self._runs:
                thread = threading.Thread(
                    target=self._watch, args=(one,), name=f"run-{one.name}", daemon=True
                )
                thread.start()
                threads.append(thread)
                if stop.wait(APART_S):
                    break
            for thread in threads:
                while thread.is_alive() and not stop.is_set():
                    thread.join(0.5)
        finally:
            self._stop.set()
            end_s = self._clock.monotonic_s() + END_S
            for thread in threads:
                thread.join(max(end_s - self._clock.monotonic_s(), 0.0))

    def _watch(self, one: Watched) -> None:
        """One run, again and again as long as that makes sense."""
        pause_s = AGAIN_S / 2
        while not self._stop.is_set():
            seen = self._frame_t(one)
            try:
                trouble = self._look(one)
            except WatchError as error:
                trouble = str(error)
            except Exception as error:  # a defect of ours costs this row, not the fleet
                logger.exception("%s: internal error", one.name)
                trouble = f"the watchdog of this run failed: {type(error).__name__}: {error}"
            if trouble is None or self._stop.is_set():
                self._put(one, is_over=True)
                return
            self._put(one, trouble=trouble, is_over=self._until is not None)
            pause_s = AGAIN_S if self._frame_t(one) != seen else min(2 * pause_s, RARELY_S)
            if self._until is not None or self._stop.wait(pause_s):
                return

    def _frame_t(self, one: Watched) -> float | None:
        """Moment of the newest look at it."""
        with self._lock:
            snapshot = self._rows[one.name].snapshot
        return None if snapshot is None else snapshot.data_t

    def _look(self, one: Watched) -> str | None:
        """Until it ends; why it could not be watched, None when its loop came to its end."""
        ends = self._until() if self._until is not None else None
        with one.open() as live:
            live.attach(lambda snapshot: self._put(one, snapshot))
            live.run(self._stop, ends)
            if live.link is not None and live.link.state == "closed" and not self._stop.is_set():
                return live.link.reason or "the way to the run cannot work"
        return None

    def _put(
        self,
        one: Watched,
        snapshot: Snapshot | None = None,
        *,
        trouble: str | None = None,
        is_over: bool = False,
    ) -> None:
        with self._lock:
            before = self._rows[one.name]
            row = self._rows[one.name] = Row(
                name=one.name,
                where=one.where,
                snapshot=snapshot or before.snapshot,
                trouble=trouble,
                is_over=is_over,
            )
        with contextlib.suppress(OSError):
            self._tell(row)
