"""Colours carry the state for every eye, and glyph and word carry it without colour."""

from itertools import combinations

import pytest
from dflash_tui.cells import Ink
from dflash_tui.theme import GLYPHS, PALETTES, State, palette_named, style_of, to_ascii

# Machado, Oliveira, Fernandes 2009, severity 1.0, on linear RGB.
EYES = {
    "usual": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "deutan": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "protan": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "tritan": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}
SAME = {frozenset({Ink.INITIALISING, Ink.CONNECTING}), frozenset({Ink.FINISHED, Ink.NO_RUN})}


def linear(colour: str) -> list[float]:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    return [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]


def luminance(colour: str) -> float:
    red, green, blue = linear(colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def lab(colour: str, eye: str) -> tuple[float, float, float]:
    seen = [sum(a * b for a, b in zip(row, linear(colour), strict=True)) for row in EYES[eye]]
    red, green, blue = (min(max(part, 0.0), 1.0) for part in seen)
    xyz = (
        (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.95047,
        0.2126 * red + 0.7152 * green + 0.0722 * blue,
        (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.08883,
    )
    x, y, z = (v ** (1 / 3) if v > 0.008856 else 7.787 * v + 16 / 116 for v in xyz)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def distance(one: str, other: str, eye: str) -> float:
    pairs = zip(lab(one, eye), lab(other, eye), strict=True)
    return sum((a - b) ** 2 for a, b in pairs) ** 0.5


@pytest.mark.parametrize("eye", EYES)
@pytest.mark.parametrize("name", ["dark", "light", "high-contrast"])
def test_no_two_states_share_a_banner_colour_for_any_eye(eye: str, name: str) -> None:
    looks = palette_named(name).looks
    for one, other in combinations([state.ink for state in State], 2):
        if frozenset({one, other}) not in SAME:
            assert distance(looks[one].ground, looks[other].ground, eye) >= 16, (one, other)


@pytest.mark.parametrize("eye", EYES)
def test_targets_and_drafters_are_told_apart_by_any_eye(eye: str) -> None:
    for palette in PALETTES[:3]:
        looks = palette.looks
        assert distance(looks[Ink.TARGET].colour, looks[Ink.DRAFTER].colour, eye) >= 20


@pytest.mark.parametrize("palette", PALETTES[:3], ids=lambda palette: palette.name)
def test_every_ink_is_legible_on_its_ground(palette) -> None:
    for ink, look in palette.looks.items():
        least = 1.4 if ink is Ink.RULE else 4.5
        assert contrast(look.colour, look.ground or palette.ground) >= least, ink


def test_the_palette_without_colour_sets_none() -> None:
    for ink in Ink:
        style = style_of("mono", ink)
        assert style.color is None
        assert style.bgcolor is None


def test_every_palette_knows_every_ink() -> None:
    for palette in PALETTES:
        assert set(palette.looks) == set(Ink)


def test_glyph_and_word_together_name_each_state() -> None:
    assert len({(GLYPHS[state], state.word) for state in State}) == len(State)


def test_ascii_spelling_keeps_width_and_tells_a_line_from_nothing() -> None:
    assert to_ascii("● ━━── │▁▇│ ⠀⠉⣀⣿") == "* ==-- |_*|  '.:"
    assert to_ascii("模型x") == "????x"
