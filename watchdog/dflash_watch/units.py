"""Quantities as people read them; the only place that rounds."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo

DAY_AND_TIME, TIME, NO_TIME = "%Y-%m-%d %H:%M:%SZ", "%H:%M:%S", "--:--:--"


def moment(
    t: object, form: str = DAY_AND_TIME, zone: tzinfo | None = UTC, unknown: str = "?"
) -> str:
    """Unix seconds as `2026-11-29 14:12:10Z`; `unknown` where no calendar has that moment.

    Args:
        t: from anywhere: a clock over there may say anything, a file may hold anything.
        form: of strftime.
        zone: None is this machine's.
        unknown: said instead.
    """
    if not isinstance(t, int | float):
        return unknown
    try:
        return datetime.fromtimestamp(t, UTC).astimezone(zone).strftime(form)
    except (ValueError, OverflowError, OSError):
        return unknown


def duration(seconds: float | None) -> str:
    """`4.2 s`, `38 s`, `4 m 10 s`, `3 h 12 m`, `2 d 4 h`; a dash when not known."""
    if seconds is None:
        return "–"
    if seconds < 10:
        return f"{max(seconds, 0.0):.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} m {whole % 60:02d} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} m"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def count(value: float | None) -> str:
    """Thousands apart by a thin blank: `41 200`; a dash when not known."""
    return "–" if value is None else f"{round(value):,}".replace(",", " ")


def fine(value: float | None) -> str:
    """Three digits of a small figure: `0.42`, `7.1`, `38.0` is `38`; from 100 on as `count`."""
    if value is None or abs(value) >= 100:
        return count(value)
    text = f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"
    return text.rstrip("0").rstrip(".")


def gib(value: float | None) -> str:
    """Bytes as `121.4` GiB; a dash when not known."""
    return "–" if value is None else f"{value / 2**30:.1f}"


def data_size(value: float | None) -> str:
    """`812 B`, `3.1 KiB`, `4.0 MiB`, `1.2 GiB`; a dash when not known."""
    if value is None:
        return "–"
    size = float(value)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024 or unit == "GiB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError


def percent(ratio: float | None) -> str:
    """0..1 as `97 %`; a dash when not known."""
    return "–" if ratio is None else f"{ratio * 100:.0f} %"


def clipped(text: str, most: int = 200) -> str:
    """One quoted line without the blanks round it, its end marked where it was cut."""
    text = text.strip()
    return text if len(text) <= most else f"{text[:most].rstrip()}..."
