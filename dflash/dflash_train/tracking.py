"""Figures for Weights & Biases and TensorBoard, through their own libraries, out of the run's way.

Each tracker has a thread of its own: one that fails, or blocks on a network, costs its figures and
nothing else. That is said once, in the log and as a `tracker` event.
"""

from __future__ import annotations

import importlib.util
import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from dflash_events import RunWriter

from dflash_train.config import TRACKERS, Config
from dflash_train.errors import UsageError
from dflash_train.fate import describe

logger = logging.getLogger(__name__)

ROOM, PATIENCE_S, FINISH_S = 1000, 120.0, 60.0

Figures = Mapping[str, float]


class Backend(Protocol):
    """What one library does with figures; called in the tracker's thread only."""

    def write(self, step: int, figures: Figures) -> None:
        """Take the figures of a step."""

    def finish(self) -> None:
        """Hand over what is left."""


def check_installed(config: Config) -> None:
    """Refuse a tracker whose library is not there.

    Raises:
        UsageError: says what to install.
    """
    for name in config.track.to:
        if name in TRACKERS and importlib.util.find_spec(name) is None:
            raise UsageError(
                f"track.to: {name} is not installed", hint=f"pip install 'dflash-toolkit[{name}]'"
            )


class Tracker:
    """A backend in its own thread.

    Args:
        name: for messages.
        open_backend: makes it; called in the thread, since it may wait for a network.
        on_trouble: told once, in whichever thread noticed, what is wrong.
        room: figures that may wait for it.
        patience_s: how long one call may take until it counts as blocked.
    """

    def __init__(
        self,
        name: str,
        open_backend: Callable[[], Backend],
        on_trouble: Callable[[str, str], None],
        *,
        room: int = ROOM,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self.name, self._open, self._on_trouble = name, open_backend, on_trouble
        self._patience_s = patience_s
        self._waiting: queue.Queue[tuple[int, Figures] | None] = queue.Queue(room)
        self._busy_since_s: float | None = time.monotonic()
        self._is_in_trouble = False
        self._thread = threading.Thread(target=self._run, name=f"track-{name}", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """It has not ended."""
        return self._thread.is_alive()

    def log(self, step: int, figures: Figures) -> None:
        """Hand figures over; never waits."""
        if not self.is_alive:
            return
        since_s = self._busy_since_s
        if since_s is not None and time.monotonic() - since_s > self._patience_s:
            self._trouble(f"no answer for {self._patience_s:.0f} s; figures wait")
        try:
            self._waiting.put_nowait((step, figures))
        except queue.Full:
            self._trouble("no answer, figures are lost")

    def close(self, wait_s: float) -> bool:
        """Hand over what is left and end; whether that was done in time."""
        try:
            self._waiting.put(None, timeout=wait_s if self.is_alive else 0)
        except queue.Full:
            return not self.is_alive
        self._thread.join(wait_s)
        if self.is_alive:
            self._trouble(f"not done within {wait_s:.0f} s of the end; left")
        return not self.is_alive

    def _run(self) -> None:
        try:
            backend = self._open()
            while (news := self._next()) is not None:
                backend.write(*news)
            backend.finish()
        except BaseException as error:  # noqa: BLE001  (a library's failure is not the run's)
            self._trouble(describe(error))

    def _next(self) -> tuple[int, Figures] | None:
        self._busy_since_s = None
        news = self._waiting.get()
        self._busy_since_s = time.monotonic()
        return news

    def _trouble(self, what: str) -> None:
        if not self._is_in_trouble:
            self._is_in_trouble = True
            self._on_trouble(self.name, what)


class Trackers:
    """All trackers of a run; none by default.

    Args:
        backends: name to what makes it.
        writer: takes the `tracker` events.
    """

    def __init__(self, backends: Mapping[str, Callable[[], Backend]], writer: RunWriter) -> None:
        self._writer = writer
        self._trackers = [Tracker(name, make, self._say) for name, make in backends.items()]

    def log(self, step: int, figures: Mapping[str, float | None]) -> None:
        """Give the figures that are known to each tracker; never waits."""
        known = {name: float(value) for name, value in figures.items() if value is not None}
        for tracker in self._trackers:
            tracker.log(step, known)

    def close(self, wait_s: float = FINISH_S) -> None:
        """Let each finish, for so long at most."""
        for tracker in self._trackers:
            tracker.close(wait_s)

    def alive(self) -> tuple[str, ...]:
        """Those that have not ended."""
        return tuple(tracker.name for tracker in self._trackers if tracker.is_alive)

    def _say(self, name: str, what: str) -> None:
        logger.warning("%s: %s; training goes on", name, what)
        self._writer.event("tracker", name=name, error=what)
