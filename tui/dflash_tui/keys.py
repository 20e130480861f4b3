"""The keys: one table from which bindings, key line and help are made."""

from __future__ import annotations

from typing import Final, NamedTuple


class Key(NamedTuple):
    """One key and what it does."""

    keys: str
    """As the framework names them, comma separated."""
    action: str
    shown: str
    label: str = ""
    """On the key line; empty keeps it off."""
    help: str = ""
    rank: int = 9
    """Lower stays on a narrow key line."""
    priority: bool = False
    """Before the framework's own meaning of the key."""


KEYS: Final[tuple[Key, ...]] = (
    Key("enter", "details", "enter", "details", "evidence, limits, what to do, all of it", 2),
    Key("w", "window", "w", "window", "plot window: 5 min, 30 min, 2 h, all", 5),
    Key("y", "scale", "y", "scale", "plot from 0, or from the lowest value", 8),
    Key("z", "zoom", "z", "zoom", "the focused panel alone, and back", 4),
    Key("space", "pause", "space", "pause", "hold the panels still; watching goes on", 3),
    Key("slash", "filter", "/", "filter", "filter the log; ! first leaves lines out", 4),
    Key("f", "follow", "f", "", "follow the log again"),
    Key("s", "stacks", "s", "stacks", "take stacks of the run (asks first)", 3),
    Key("a", "acknowledge", "a", "", "you know of the open incident: no more bells for it"),
    Key("r", "retry", "r", "", "connect again now"),
    Key("tab", "go(1)", "tab", "", "next panel", priority=True),
    Key("shift+tab", "go(-1)", "shift+tab", "", "previous panel", priority=True),
    Key("up,k", "scroll(1)", "up", "", "scroll up"),
    Key("down,j", "scroll(-1)", "down", "", "scroll down"),
    Key("pageup", "scroll(10)", "pgup", "", "scroll up ten rows"),
    Key("pagedown", "scroll(-10)", "pgdn", "", "scroll down ten rows"),
    Key("g,home", "end(1)", "g", "", "oldest line, or top"),
    Key("G,end", "end(-1)", "G", "", "newest line, or end"),
    Key("t", "theme", "t", "", "theme: dark, light, high-contrast, mono"),
    Key("H", "header", "H", "", "header on or off"),
    Key("S", "keep", "S", "", "save the screen as SVG and text"),
    Key("escape", "leave", "esc", "", "one level back; never quits"),
    Key("question_mark", "help", "?", "help", "this page", 0),
    Key("q", "quit", "q", "quit", "quit the dashboard", 0),
    Key("ctrl+c", "interrupt", "ctrl+c", priority=True),
)

DEMO_KEYS: Final[tuple[Key, ...]] = (
    Key("right_square_bracket", "scene(1)", "]", "next scene", "next scene of the demo", 1),
    Key("left_square_bracket", "scene(-1)", "[", "", "previous scene of the demo"),
)


def keys_for(*, demo: bool) -> tuple[Key, ...]:
    """The keys that do something here."""
    return (*DEMO_KEYS, *KEYS) if demo else KEYS
