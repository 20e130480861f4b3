"""How each ink looks: palettes, the glyph and word of every state, and the plain-ASCII spelling.

Dark is the default. Text on its ground has a contrast of at least 4.5:1, banners at least 5:1, and
every two banner grounds stay apart for the three common kinds of colour blindness; glyph and word
carry the state all the same, so the palette without colour says as much.
"""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple

from rich.style import Style

from dflash_tui.cells import Ink, width


class State(StrEnum):
    """What the banner says: the verdicts, and two states before there is one."""

    RUNNING = "running"
    SLOW = "slow"
    QUIET = "quiet"
    INITIALISING = "initialising"
    STALLED = "stalled"
    CRASHED = "crashed"
    FINISHED = "finished"
    BLIND = "blind"
    CONNECTING = "connecting"
    NO_RUN = "no-run"

    @property
    def ink(self) -> Ink:
        """The banner's ink."""
        return Ink(self.value)

    @property
    def word(self) -> str:
        """As written on the banner."""
        return self.value.replace("-", " ").upper()


GLYPHS: Final[dict[State, str]] = {
    State.RUNNING: "●",
    State.SLOW: "◐",
    State.QUIET: "○",
    State.INITIALISING: "◌",
    State.STALLED: "■",
    State.CRASHED: "✖",
    State.FINISHED: "□",
    State.BLIND: "?",
    State.CONNECTING: "◌",
    State.NO_RUN: "□",
}

ALARMS: Final = frozenset({State.STALLED, State.CRASHED, State.BLIND})
"""States that ring the bell once when they begin."""


class Look(NamedTuple):
    """Ink colour, ground colour (None: the palette's) and attributes."""

    colour: str | None
    ground: str | None = None
    bold: bool = False
    reverse: bool = False
    dim: bool = False


class Palette(NamedTuple):
    """One theme."""

    name: str
    ground: str | None
    looks: dict[Ink, Look]


def _palette(name: str, ground: str, text: str, colours: dict[Ink, str], banners: str) -> Palette:
    looks = {Ink.TEXT: Look(text), Ink.STRONG: Look(text, bold=True)}
    looks |= {ink: Look(colour) for ink, colour in colours.items()}
    looks[Ink.FOCUS] = Look(colours[Ink.KEY], bold=True)
    looks[Ink.CRITICAL] = Look(colours[Ink.CRITICAL], bold=True)
    for line in banners.split(";"):
        ink, colour, back = line.split()
        looks[Ink(ink)] = Look(colour, back, bold=True)
    return Palette(name, ground, looks)


BANNERS: Final = (
    "running #000000 #2fbf8f;slow #ffffff #9911ee;quiet #000000 #f0e442;"
    "initialising #ffffff #0072b2;connecting #ffffff #0072b2;stalled #000000 #e69f00;"
    "crashed #ffffff #b3261e;blind #ffffff #656a75;finished #e6e6e6 #2b3038;"
    "no-run #e6e6e6 #2b3038"
)

_DARK: Final = {
    Ink.DIM: "#8a8f98",
    Ink.HISTORY: "#71859a",
    Ink.RULE: "#3a404a",
    Ink.TITLE: "#c4c9d1",
    Ink.TARGET: "#56b4e9",
    Ink.DRAFTER: "#cc79a7",
    Ink.QUEUE: "#f0e442",
    Ink.LINE: "#2fbf8f",
    Ink.BASELINE: "#b3aa3a",
    Ink.INFO: "#56b4e9",
    Ink.WARN: "#e69f00",
    Ink.CRITICAL: "#ff7043",
    Ink.KEY: "#f0e442",
}

_LIGHT: Final = {
    Ink.DIM: "#5b616b",
    Ink.HISTORY: "#5a6d80",
    Ink.RULE: "#c3c8d0",
    Ink.TITLE: "#2d333b",
    Ink.TARGET: "#005a9c",
    Ink.DRAFTER: "#a3195b",
    Ink.QUEUE: "#6b6300",
    Ink.LINE: "#00714f",
    Ink.BASELINE: "#6b6300",
    Ink.INFO: "#005a9c",
    Ink.WARN: "#8a5200",
    Ink.CRITICAL: "#b3261e",
    Ink.KEY: "#6b3fa0",
}

_CONTRAST: Final = {
    **_DARK,
    Ink.DIM: "#c8c8c8",
    Ink.HISTORY: "#a9c3dc",
    Ink.RULE: "#9a9a9a",
    Ink.TITLE: "#ffffff",
    Ink.TARGET: "#4db8ff",
    Ink.DRAFTER: "#ff9ac4",
    Ink.QUEUE: "#fff04a",
    Ink.LINE: "#4dffbf",
    Ink.BASELINE: "#fff04a",
    Ink.WARN: "#ffbf33",
    Ink.CRITICAL: "#ff8a66",
    Ink.KEY: "#fff04a",
}

_PLAIN: Final = Palette(
    "mono",
    None,
    {ink: Look(None) for ink in Ink}
    | {ink: Look(None, dim=True) for ink in (Ink.DIM, Ink.RULE, Ink.BASELINE)}
    | {ink: Look(None, bold=True) for ink in (Ink.STRONG, Ink.FOCUS, Ink.WARN, Ink.CRITICAL)}
    | {ink: Look(None, bold=True) for ink in (Ink.TITLE, Ink.KEY)}
    | {state.ink: Look(None, bold=True, reverse=True) for state in State},
)

PALETTES: Final[tuple[Palette, ...]] = (
    _palette("dark", "#14171c", "#e6e6e6", _DARK, BANNERS),
    _palette("light", "#fbfbf8", "#1b1f24", _LIGHT, BANNERS),
    _palette("high-contrast", "#000000", "#ffffff", _CONTRAST, BANNERS),
    _PLAIN,
)


def palette_named(name: str) -> Palette:
    """The palette of that name, else the first one."""
    return next((palette for palette in PALETTES if palette.name == name), PALETTES[0])


@lru_cache(maxsize=256)
def style_of(palette_name: str, ink: Ink) -> Style:
    """The ink's style; always with a ground, unless the palette has none at all."""
    palette = palette_named(palette_name)
    look = palette.looks[ink]
    return Style(
        color=look.colour,
        bgcolor=look.ground or palette.ground,
        bold=look.bold or None,
        reverse=look.reverse or None,
        dim=look.dim or None,
    )


_ASCII: Final = str.maketrans(
    {
        **dict(zip("●◐○◌■✖□", "*%o.#X-", strict=True)),
        **dict(zip("━─│╭╮╰╯╌┼", "=-|++++-+", strict=True)),
        **dict(zip("▁▂▃▄▅▆▇", "_.-:=+*", strict=True)),
        **dict(zip("▲▼▸▏·…→–—↑↓", "^v>|.~>--^v", strict=True)),
        "°": " ",
        "×": "x",
    }
)


@lru_cache(maxsize=4096)
def to_ascii(text: str) -> str:
    """The same number of cells in plain ASCII; braille becomes `'`, `.` or `:`."""
    if text.isascii():
        return text
    return "".join(map(_ascii_char, text.translate(_ASCII)))


def _ascii_char(char: str) -> str:
    if char.isascii():
        return char
    dots = ord(char) - 0x2800
    if 0 <= dots < 256:
        upper, lower = dots & 0b00011011, dots & 0b11100100
        return " " if not dots else ":" if upper and lower else "'" if upper else "."
    return "?" * width(char)
