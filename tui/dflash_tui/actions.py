"""What each key does: one short method per action of `keys.py`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from dflash_watch.model import IncidentStage
from dflash_watch.private import open_private
from textual.app import App

from dflash_tui import state
from dflash_tui.desk import Desk
from dflash_tui.feed import Feed
from dflash_tui.state import Choices, Panel
from dflash_tui.theme import PALETTES

STACKS_QUESTION = "take stacks of the run now? it goes on meanwhile"


class Actions(App[int]):
    """The verbs; what they act on comes from the app that inherits them."""

    feed: Feed
    desk: Desk

    def redraw(self) -> None:
        """Draws what changed."""
        raise NotImplementedError

    def picture(self) -> str:
        """The screen as plain text."""
        raise NotImplementedError

    def _choose(self, change: Callable[[Choices], Choices]) -> None:
        self.desk.choose(change)
        self.redraw()

    def action_details(self) -> None:
        """All that is known, or back."""
        self._choose(lambda now: state.open_page(now, Panel.DETAILS))

    def action_help(self) -> None:
        """The keys, or back."""
        self._choose(lambda now: state.open_page(now, Panel.HELP))

    def action_window(self) -> None:
        """Next plot window."""
        self._choose(state.next_window)

    def action_scale(self) -> None:
        """Plot from 0, or from the lowest value."""
        self._choose(lambda now: now._replace(auto_scale=not now.auto_scale))

    def action_zoom(self) -> None:
        """The focused panel alone, or all."""
        self._choose(state.toggle_zoom)

    def action_pause(self) -> None:
        """Holds the panels, or lets them go on."""
        self.desk.pause()
        self.redraw()

    def action_filter(self) -> None:
        """Begins to type a filter, with the old one to change."""
        self._choose(lambda now: now._replace(typing=now.needle, asking=None))

    def action_follow(self) -> None:
        """Back to the newest log line."""
        self._choose(state.follow)

    def action_go(self, step: int) -> None:
        """Another panel."""
        if self.desk.choices.typing is None:
            self._choose(lambda now: state.focus_next(now, step))

    def action_scroll(self, rows: int) -> None:
        """Up (positive) or down."""
        self.desk.scroll(rows)
        self.redraw()

    def action_end(self, towards: int) -> None:
        """Oldest line or top (1), newest line or end (-1)."""
        log = state.scrolls(self.desk.choices) is Panel.LOG
        if log and towards < 0:
            self._choose(state.follow)
        else:
            self.action_scroll(towards * state.LOG_KEPT)

    def action_theme(self) -> None:
        """The next palette."""
        names = [palette.name for palette in PALETTES]
        here = names.index(self.desk.choices.theme)
        name = names[(here + 1) % len(names)]
        self.desk.say(f"theme {name}")
        self._choose(lambda now: now._replace(theme=name))

    def action_header(self) -> None:
        """Header row on or off."""
        self._choose(lambda now: now._replace(header=not now.header))

    def action_leave(self) -> None:
        """One level back; never quits."""
        self._choose(state.back)

    def action_stacks(self) -> None:
        """Asks before it asks the watcher."""
        self._choose(lambda now: now._replace(asking=STACKS_QUESTION, typing=None))

    def action_acknowledge(self) -> None:
        """A person knows of the open incident; the watcher remembers it."""
        snapshot = self.feed.latest()
        incident = snapshot.incident if snapshot is not None else None
        if incident is None or incident.stage is IncidentStage.RESOLVED:
            self.desk.say("no open incident to acknowledge")
        elif incident.acknowledged_t is not None:
            at = self.desk.view().clock(incident.acknowledged_t)
            self.desk.say(f"{incident.failure} was acknowledged at {at}")
        else:
            self.feed.send({"op": "acknowledge", "key": incident.key})
            self.desk.say(f"acknowledged: {incident.failure}; the watcher remembers it")
        self.redraw()

    def action_retry(self) -> None:
        """Connect again now."""
        self.feed.send({"op": "retry"})
        self.desk.say("asked for a new connection")
        self.redraw()

    def action_scene(self, step: int) -> None:
        """Another scene of the demo."""
        self.feed.send({"op": "scene", "step": step})
        self.desk.take(self.feed.latest())
        self.redraw()

    def action_keep(self) -> None:
        """Saves the screen as SVG and text where the dashboard was started."""
        stamp = self.desk.view().clock(self.desk.clock.wall_s()).replace(":", "")
        base = Path(f"dflash-watch-{stamp}").absolute()
        try:
            _put(base.with_suffix(".svg"), self.export_screenshot())
            _put(base.with_suffix(".txt"), self.picture())
            self.desk.say(f"saved {base}.svg and .txt")
        except OSError as error:
            self.desk.say(f"not saved: {error.strerror}: {base}.svg")
        self.redraw()

    def action_interrupt(self) -> None:
        """Ends the dashboard, whatever is open."""
        self.exit(0)

    async def action_quit(self) -> None:
        """Ends the dashboard."""
        self.exit(0)


def _put(path: Path, text: str) -> None:
    """A file of the person's alone: where the dashboard was started others may write as well."""
    descriptor = open_private(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
