"""What the dashboard remembers between two ticks: the newest snapshot, the past, the choices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, tzinfo
from typing import Final

from dflash_watch.clock import Clock
from dflash_watch.model import Snapshot

from dflash_tui import state
from dflash_tui.keys import Key
from dflash_tui.plot import Sample, finite
from dflash_tui.screen import Screen
from dflash_tui.state import Choices, Shown
from dflash_tui.theme import ALARMS, State
from dflash_tui.view import Seen, View, build_view, see

WAITING: Final = frozenset({State.CONNECTING, State.NO_RUN})


class Desk:
    """State of one dashboard; knows no terminal.

    Args:
        keys: of this dashboard, for key line and help.
        clock: this machine's.
        zone: of the moments drawn.
        choices: to begin with.
    """

    def __init__(
        self, keys: Sequence[Key], clock: Clock, zone: tzinfo = UTC, choices: Choices | None = None
    ) -> None:
        self.keys, self.clock, self.zone = tuple(keys), clock, zone
        self.choices = choices or Choices()
        self._seen: Seen | None = None
        self._points: tuple[Sample, ...] = ()
        self._lines: tuple[str, ...] = ()
        self._rang: State | None = None
        self._waits_since_s = clock.monotonic_s()
        """Since when there is no run to judge: connecting, or nothing found."""

    def take(self, snapshot: Snapshot | None) -> bool:
        """Takes the newest snapshot; True when an alarming state has just begun."""
        if snapshot is not None:
            self._remember(snapshot)
        now = self.view().state
        if now is not self._rang and not (now in WAITING and self._rang in WAITING):
            self._waits_since_s = self.clock.monotonic_s()
        begun = now is not self._rang and now in ALARMS
        self._rang = now
        return begun

    def _remember(self, snapshot: Snapshot) -> None:
        before = self._seen
        if before is not None and before.snapshot is snapshot:
            return
        if before is not None and _identity(before.snapshot) != _identity(snapshot):
            self._points, self._lines = (), ()
            self.choices = state.follow(self.choices)
        elif before is not None and _unit(before.snapshot) != _unit(snapshot):
            self._points = ()  # the run has begun to say tokens: another scale
        self._seen = see(before, snapshot, self.clock.wall_s(), self.clock.monotonic_s())
        board = snapshot.board
        newest = [
            Sample(t, point.low, point.high, point.mean)
            for point in board.throughput
            if (t := finite(point.t)) is not None
        ]
        self._points = state.merge_points(self._points, newest)
        self._lines, new = state.merge_lines(self._lines, board.log.lines)
        if self.choices.held is not None:
            self.choices = self.choices._replace(unseen=self.choices.unseen + new)

    def view(self) -> View:
        """The view at this moment."""
        now_s = self.clock.monotonic_s()
        view = build_view(self._seen, self.clock.wall_s(), now_s, self.zone)
        if view.state in WAITING:
            return view._replace(held_s=max(now_s - self._waits_since_s, 0.0))
        return view

    def shown(self) -> Shown:
        """The view and the past kept on this side."""
        return Shown(self.view(), self._points, self._lines)

    def screen(self) -> Screen:
        """Everything that decides what is drawn now."""
        return Screen(self.shown(), self.choices, self.keys, self.clock.monotonic_s())

    def choose(self, change: Callable[[Choices], Choices]) -> None:
        """Applies one change of `state.py`."""
        self.choices = change(self.choices)

    def scroll(self, rows: int) -> None:
        """Scrolls what is focused or zoomed."""
        lines = self.choices.paused.lines if self.choices.paused else self._lines
        self.choices = state.scroll(self.choices, rows, lines)

    def pause(self) -> None:
        """Holds the panels, or lets them go on."""
        self.choices = state.toggle_pause(self.choices, self.shown())

    def say(self, text: str) -> None:
        """A short answer on the key line."""
        self.choices = state.say(self.choices, text, self.clock.monotonic_s())


def _unit(snapshot: Snapshot) -> str:
    return snapshot.board.throughput_unit


def _identity(snapshot: Snapshot) -> tuple[str | None, ...]:
    """Two snapshots of equal identity are about one run: its past can be joined."""
    board = snapshot.board
    return (snapshot.run, board.run_dir, board.log.path)
