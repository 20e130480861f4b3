"""The demo as a feed, and a clock that stands still."""

from __future__ import annotations

from datetime import UTC, tzinfo
from typing import Any, Final

from dflash_watch.clock import Clock, SystemClock
from dflash_watch.model import Snapshot

from dflash_tui.demo.scenes import SCENES, scene

SCENE_S: Final = 8.0
FROZEN_T: Final = 1_790_000_000.0


class FrozenClock:
    """A clock that stands, so that the same scene gives the same picture."""

    def __init__(self, wall_s: float = FROZEN_T) -> None:
        self.now_s = wall_s

    def wall_s(self) -> float:
        """Always the same moment, unless somebody sets `now_s`."""
        return self.now_s

    def monotonic_s(self) -> float:
        """The same, as it never goes back."""
        return self.now_s

    def sleep(self, seconds: float) -> None:
        """Nothing to wait for: time is set, not passed."""


class DemoFeed:
    """Plays the scenes one after the other, until somebody chooses one.

    Args:
        clock: wall clock of the figures.
        zone: of the moments in the invented log.
        name: scene to stay at; None plays all.
    """

    def __init__(
        self, clock: Clock | None = None, zone: tzinfo = UTC, name: str | None = None
    ) -> None:
        self._clock, self._zone = clock or SystemClock(), zone
        self._names = tuple(SCENES)
        self._index = self._names.index(name) if name else 0
        self._plays = name is None
        self._begin_s = self._clock.wall_s()

    @property
    def name(self) -> str:
        """The scene on the screen."""
        return self._names[self._index]

    def latest(self) -> Snapshot:
        """The scene as it is now."""
        now = self._clock.wall_s()
        if self._plays and now - self._begin_s >= SCENE_S:
            self._go(1)
        return scene(self.name, now, self._begin_s, self._zone)

    def send(self, command: dict[str, Any]) -> None:
        """`{"op": "scene", "step": 1}` chooses the next scene and stays there."""
        if command.get("op") == "scene":
            self._plays = False
            self._go(int(command.get("step", 1)))

    def close(self) -> None:
        """Nothing is open."""

    def _go(self, step: int) -> None:
        self._index = (self._index + step) % len(self._names)
        self._begin_s = self._clock.wall_s()
