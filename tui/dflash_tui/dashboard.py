"""The dashboard: wires feed, desk and canvas to keys and a one-second tick."""

from __future__ import annotations

from datetime import UTC, tzinfo
from functools import partial
from typing import ClassVar

from dflash_watch.clock import Clock, SystemClock
from dflash_watch.model import Snapshot
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from dflash_tui import state
from dflash_tui.actions import Actions
from dflash_tui.canvas import Canvas
from dflash_tui.cells import Row
from dflash_tui.desk import Desk
from dflash_tui.feed import Feed
from dflash_tui.keys import DEMO_KEYS, KEYS, Key, keys_for
from dflash_tui.panels.foot import key_places
from dflash_tui.screen import Stills, boxes_of, compose, text_of
from dflash_tui.state import Choices
from dflash_tui.theme import to_ascii

TICK_S = 1.0


def _bindings(keys: tuple[Key, ...]) -> list[BindingType]:
    return [
        Binding(key.keys, key.action, key.label, show=False, priority=key.priority, id=key.action)
        for key in keys
    ]


class Dashboard(Actions):
    """Draws the newest snapshot once a second; never waits for anything.

    Args:
        feed: where snapshots come from.
        clock: this machine's.
        zone: of the moments drawn.
        ascii_only: draw with plain ASCII.
    """

    CSS = "Screen { overflow: hidden; }"
    ENABLE_COMMAND_PALETTE = False
    ALLOW_SELECT = False
    BINDINGS: ClassVar[list[BindingType]] = _bindings(KEYS)
    RINGS: ClassVar[bool] = True
    IS_DEMO: ClassVar[bool] = False

    def __init__(
        self,
        feed: Feed,
        *,
        clock: Clock | None = None,
        zone: tzinfo = UTC,
        ascii_only: bool = False,
    ) -> None:
        super().__init__()
        self.animation_level = "none"
        self.feed = feed
        keys = keys_for(demo=self.IS_DEMO)
        first = Choices(theme="mono" if self.no_color else "dark")
        self.desk = Desk(keys, clock or SystemClock(), zone, first)
        self._ascii_only = ascii_only
        self._stills = Stills()
        self._stacks_path: str | None = None
        self.canvas = Canvas(ascii_only=ascii_only)

    def compose(self) -> ComposeResult:
        """One canvas."""
        yield self.canvas

    def on_mount(self) -> None:
        """First picture at once, then every second."""
        self.canvas.focus()
        self.set_interval(TICK_S, self.tick)
        self.tick()

    def tick(self) -> None:
        """Takes the newest snapshot and draws."""
        snapshot = self.feed.latest()
        if self.desk.take(snapshot) and self.RINGS and not is_known(snapshot):
            self.bell()
        if snapshot is not None and snapshot.stacks_path not in (None, self._stacks_path):
            self._stacks_path = snapshot.stacks_path
            self.desk.say(f"stacks: {self._stacks_path}")
        self.redraw()

    def rows(self) -> list[Row]:
        """The screen as it is now."""
        return compose(self.desk.screen(), *self.canvas.size, self._stills)

    def redraw(self) -> None:
        """Draws what changed."""
        self.canvas.show(self.rows(), self.desk.choices.theme)

    def picture(self) -> str:
        """The screen as plain text."""
        text = text_of(self.rows())
        return to_ascii(text) if self._ascii_only else text

    def on_canvas_resized(self) -> None:
        """Another size."""
        self.redraw()

    def on_key(self, event: events.Key) -> None:
        """While a question or the filter is open, keys are its text."""
        choices = self.desk.choices
        if choices.asking is None and choices.typing is None:
            return
        event.prevent_default()
        if choices.asking is not None:
            self._answer(yes=event.key in {"y", "Y"})
        else:
            self.desk.choose(lambda now: state.typed(now, event.key, event.character or ""))
        self.redraw()

    def on_paste(self, event: events.Paste) -> None:
        """Pasted text belongs to an open filter."""
        if self.desk.choices.typing is not None:
            self.desk.choose(lambda now: state.typed(now, "", event.text))
            self.redraw()

    def _answer(self, *, yes: bool) -> None:
        self.desk.choose(lambda now: now._replace(asking=None))
        if yes:
            self.feed.send({"op": "stacks"})
            self.desk.say("asked for stacks; the file is named here once it is there")

    def on_canvas_pressed(self, event: Canvas.Pressed) -> None:
        """A click on a panel focuses it; on the key line it is the key."""
        width, height = self.canvas.size
        if event.y == height - 1:
            for key, begin, end in key_places(self.desk.keys, width):
                if begin <= event.x < end:
                    self.call_later(self.run_action, key.action)
        else:
            self._focus_at(event.x, event.y)

    def on_canvas_wheeled(self, event: Canvas.Wheeled) -> None:
        """The wheel scrolls the panel under it."""
        self._focus_at(event.x, event.y)
        self.action_scroll(event.rows)

    def _focus_at(self, x: int, y: int) -> None:
        for box in boxes_of(self.desk.screen(), *self.canvas.size):
            if box.holds(x, y) and box.panel in state.TAB_ORDER:
                self.desk.choose(partial(state.focus_on, panel=box.panel))
        self.redraw()


def is_known(snapshot: Snapshot | None) -> bool:
    """What is open was acknowledged: no bell for a person who comes back to it."""
    incident = snapshot.incident if snapshot is not None else None
    return incident is not None and incident.acknowledged_t is not None


class DemoDashboard(Dashboard):
    """The same with keys for the scenes, and silent."""

    BINDINGS: ClassVar[list[BindingType]] = _bindings(DEMO_KEYS)
    RINGS = False
    IS_DEMO = True
