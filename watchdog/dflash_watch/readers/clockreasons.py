"""Why a card's clocks are where they are: the driver's bits in words.

The mask is the same under its new name (clocks event reasons) and its old one (throttle reasons).
"""

from __future__ import annotations

ORDINARY = {
    0x001: "it idles",
    0x002: "its clocks are set by hand or by a program",
    0x004: "its own power limit",
    0x010: "it keeps step with the slowest card of its group (sync boost)",
    0x100: "its display wants it",
    0x200: "a limit of its board",
    0x400: "its voltage limit",
}
"""Nothing is wrong by these alone."""
HELD_DOWN = {
    0x040: "hardware thermal slowdown",
    0x020: "too hot (software thermal slowdown)",
    0x080: "the power supply brakes",
    0x008: "hardware slowdown",
}
"""Cooling or power take speed away; the most telling first, since 0x008 comes along with others."""
ANY_HELD_DOWN = sum(HELD_DOWN)


def in_words(mask: int) -> str:
    """All reasons of a mask, the worst first; `none` where nothing holds the clock."""
    known = {**HELD_DOWN, **ORDINARY}
    told = [text for bit, text in known.items() if mask & bit]
    rest = mask & ~sum(known)
    if rest:
        told.append(f"another reason ({rest:#x})")
    return ", ".join(told) or "none"
