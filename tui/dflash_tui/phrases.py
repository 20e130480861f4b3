"""Quantities and names as the panels write them, long and short."""

from __future__ import annotations

import math

from dflash_watch import units
from dflash_watch.model import EvidenceKind, Snapshot

from dflash_tui.cells import clean


def known(value: float | None) -> float | None:
    """The value, or None for NaN and infinity."""
    return None if value is None or not math.isfinite(value) else value


def duration(seconds: float | None, *, short: bool = False) -> str:
    """`4 m 10 s`; short: `4m10s`. At most `999 d`."""
    seconds = known(seconds)
    text = units.duration(None if seconds is None else min(seconds, 999 * 86400.0))
    return text.replace(" ", "") if short else text


def count(value: float | None, *, short: bool = False) -> str:
    """`41 200`; short: `41.2k`. Never more than 9 cells."""
    value = known(value)
    if value is None or abs(value) >= 1e15:
        return "–"
    if not short and abs(value) < 1e7:
        return units.count(value)
    for limit, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            scaled = value / limit
            return (
                f"{scaled:.0f}{unit}"
                if scaled >= 100 or scaled == int(scaled)
                else f"{scaled:.1f}{unit}"
            )
    return f"{value:.0f}"


def pace(value: float | None, unit: str) -> str:
    """Tokens a second as whole numbers; steps a second may be few: `0.42`."""
    value = known(value)
    return count(value) if unit == "tok/s" or value is None else units.fine(min(value, 1e7))


def rate(value: float | None) -> str:
    """`5.1/s`."""
    value = known(value)
    return "–" if value is None else f"{min(value, 99999.0):.1f}/s"


def percent(ratio: float | None) -> str:
    """`97 %`, never more than 6 cells."""
    ratio = known(ratio)
    return "–" if ratio is None else f"{min(max(ratio, -9.0), 99.0) * 100:.0f} %"


def window(seconds: float | None, *, short: bool = False) -> str:
    """`30 min`, `2 h`, `all`."""
    if seconds is None or not math.isfinite(seconds):
        return "all"
    if seconds < 60:
        text = f"{seconds:.0f} s"
    elif seconds < 7200:
        text = f"{round(seconds / 60, 1):g} {'m' if short else 'min'}"
    else:
        text = f"{round(min(seconds / 3600, 9999), 1):g} h"
    return text.replace(" ", "") if short else text


def reasons(snapshot: Snapshot, *, calm: bool = False) -> str:
    """The evidence by weight, nothing twice: what speaks for it, against it, what is missing.

    Args:
        snapshot: newest.
        calm: nothing is wrong: sources that this run never had are left to the details.
    """
    never = {source for source, view in snapshot.views.items() if view.startswith("none")}
    order = {EvidenceKind.FOR: 0, EvidenceKind.AGAINST: 1, EvidenceKind.MISSING: 2}
    words = {EvidenceKind.FOR: "", EvidenceKind.AGAINST: "but ", EvidenceKind.MISSING: "missing: "}
    ranked = sorted(snapshot.evidence, key=lambda one: order[one.kind])
    told: list[str] = []
    for one in ranked:
        if calm and one.kind is EvidenceKind.MISSING and one.source in never:
            continue
        text = words[one.kind] + clean(one.text)
        if not any(text in earlier for earlier in told):
            told.append(text)
    return " · ".join(told)


def open_findings(snapshot: Snapshot) -> int:
    """Findings that are open and more than a note."""
    return sum(
        1 for one in snapshot.board.findings if one.closed_t is None and one.severity != "info"
    )
