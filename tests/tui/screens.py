"""Screens of the demo at a frozen moment, for tests that compare them."""

from __future__ import annotations

from datetime import UTC
from pathlib import Path

from dflash_tui.cells import Row
from dflash_tui.demo.feed import FROZEN_T, DemoFeed, FrozenClock
from dflash_tui.demo.scenes import SCENES
from dflash_tui.desk import Desk
from dflash_tui.keys import keys_for
from dflash_tui.screen import compose
from dflash_tui.state import Choices
from dflash_watch.model import Snapshot

GOLDEN = Path(__file__).parent / "golden"
GOLDEN_SCREENS = [
    *[(name, width, height) for name in SCENES for width, height in ((80, 24), (120, 40))],
    *[("running", width, height) for width, height in ((60, 16), (100, 34), (160, 45), (200, 20))],
    ("stalled", 50, 12),
]


def desk_of(snapshot: Snapshot | None, choices: Choices | None = None) -> Desk:
    """A desk that has just taken this snapshot, at the frozen moment."""
    desk = Desk(keys_for(demo=False), FrozenClock(), UTC, choices)
    desk.take(snapshot)
    return desk


def scene(name: str) -> Snapshot:
    """A scene of the demo at the frozen moment."""
    return DemoFeed(FrozenClock(FROZEN_T), UTC, name).latest()


def rows_of(name: str, width: int, height: int, choices: Choices | None = None) -> list[Row]:
    """A scene as rows."""
    return compose(desk_of(scene(name), choices).screen(), width, height)
