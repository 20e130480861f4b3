"""What the person chose to see: plain values and the functions that change them.

Nothing here knows the terminal or the framework; the app calls these and draws again.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from dflash_tui.plot import Sample
from dflash_tui.view import View

LOG_KEPT: Final = 2000
POINTS_KEPT: Final = 6000

WINDOWS_S: Final[tuple[float | None, ...]] = (300.0, 1800.0, 7200.0, None)
"""Plot windows that `w` goes through; None is everything kept."""


class Panel(StrEnum):
    """The parts of the screen that can be focused and zoomed, and the two pages."""

    PIPELINE = "pipeline"
    THROUGHPUT = "throughput"
    FINDINGS = "findings"
    LOG = "log"
    DETAILS = "details"
    HELP = "help"


TAB_ORDER: Final = (Panel.PIPELINE, Panel.THROUGHPUT, Panel.FINDINGS, Panel.LOG)


class Shown(NamedTuple):
    """What the panels draw: a view, and the past kept on this side."""

    view: View
    points: tuple[Sample, ...] = ()
    lines: tuple[str, ...] = ()


class Choices(NamedTuple):
    """Everything the person can change."""

    focus: Panel = Panel.LOG
    zoom: Panel | None = None
    """Panel or page that has the whole middle."""
    window_s: float | None = 1800.0
    auto_scale: bool = False
    """Plot from the lowest value instead of from 0."""
    needle: str = ""
    """Filter of the log; a leading `!` excludes."""
    typing: str | None = None
    """Filter being typed; None when the keys are keys."""
    asking: str | None = None
    """Question that waits for y or n."""
    held: tuple[str, ...] | None = None
    """Log lines as they were when scrolling began; None follows."""
    unseen: int = 0
    """Lines that came since."""
    scroll: int = 0
    """Rows up from the end (log), or down from the top (everything else)."""
    paused: Shown | None = None
    """What the panels show while the display is held."""
    theme: str = "dark"
    header: bool = True
    notice: str = ""
    """Short answer to the last key, until `notice_until_s`."""
    notice_until_s: float = 0.0


def toggle_pause(now: Choices, shown: Shown) -> Choices:
    """Holds the panels as they are, or lets them go on."""
    return now._replace(paused=shown if now.paused is None else None)


def next_window(now: Choices) -> Choices:
    """The next plot window, round and round."""
    position = WINDOWS_S.index(now.window_s) if now.window_s in WINDOWS_S else 0
    return now._replace(window_s=WINDOWS_S[(position + 1) % len(WINDOWS_S)])


def focus_next(now: Choices, step: int) -> Choices:
    """The next or previous panel; a zoomed one stays zoomed."""
    here = TAB_ORDER.index(now.focus) if now.focus in TAB_ORDER else 0
    panel = TAB_ORDER[(here + step) % len(TAB_ORDER)]
    zoom = panel if now.zoom in TAB_ORDER else now.zoom
    return follow(now._replace(focus=panel, zoom=zoom))


def toggle_zoom(now: Choices) -> Choices:
    """The focused panel alone, or all again."""
    return now._replace(zoom=None if now.zoom else now.focus, scroll=0, held=None, unseen=0)


def open_page(now: Choices, page: Panel) -> Choices:
    """Help or details in the middle; the same key closes it."""
    return now._replace(zoom=None if now.zoom is page else page, scroll=0, held=None, unseen=0)


def back(now: Choices) -> Choices:
    """One level back, never out."""
    if now.asking is not None or now.typing is not None:
        return now._replace(asking=None, typing=None)
    if now.zoom is not None:
        return now._replace(zoom=None, scroll=0, held=None, unseen=0)
    if now.held is not None or now.scroll:
        return follow(now)
    return now._replace(needle="")


def scrolls(now: Choices) -> Panel:
    """What the arrow keys move."""
    return now.zoom or now.focus


def scroll(now: Choices, rows: int, log: Sequence[str]) -> Choices:
    """Moves by `rows` towards the top (log: towards older lines)."""
    if scrolls(now) is not Panel.LOG:
        return now._replace(scroll=max(now.scroll - rows, 0))
    position = min(max(now.scroll + rows, 0), max(len(log) - 1, 0))
    if position == 0:
        return follow(now)
    held = tuple(log) if now.held is None else now.held
    return now._replace(scroll=position, held=held)


def follow(now: Choices) -> Choices:
    """Back to the newest."""
    return now._replace(scroll=0, held=None, unseen=0)


def say(now: Choices, text: str, now_s: float, for_s: float = 6.0) -> Choices:
    """Shows a short answer for a while."""
    return now._replace(notice=text, notice_until_s=now_s + for_s)


def merge_lines(kept: tuple[str, ...], newest: tuple[str, ...]) -> tuple[tuple[str, ...], int]:
    """The kept log and how many lines are new: the snapshot's lines overlap with those kept."""
    if newest == kept[len(kept) - len(newest) :]:
        return kept, 0
    for base in (kept, kept[:-1]):  # the last line may since have been rewritten: a progress bar
        for overlap in range(min(len(base), len(newest)), 0, -1):
            if base[-overlap] == newest[0] and base[-overlap:] == newest[:overlap]:
                new = len(newest) - overlap - (len(kept) - len(base))
                return (*base, *newest[overlap:])[-LOG_KEPT:], max(new, 0)
    return (*kept, *newest)[-LOG_KEPT:], len(newest)


def merge_points(kept: tuple[Sample, ...], newest: Sequence[Sample]) -> tuple[Sample, ...]:
    """Older points kept here, then the snapshot's. Beyond `POINTS_KEPT` the old half is halved."""
    if not newest:
        return kept
    begin = newest[0].t
    older = kept if kept and kept[-1].t < begin else tuple(p for p in kept if p.t < begin)
    merged = (*older, *newest)
    if len(merged) <= POINTS_KEPT:
        return merged
    half = len(merged) // 2 // 2 * 2
    pairs = zip(merged[:half:2], merged[1:half:2], strict=True)
    return (*(_joined(first, second) for first, second in pairs), *merged[half:])


def _joined(first: Sample, second: Sample) -> Sample:
    """One bucket out of two: lowest of both, highest of both."""
    lows = [point.low for point in (first, second) if point.low is not None]
    highs = [point.high for point in (first, second) if point.high is not None]
    means = [point.mean for point in (first, second) if point.mean is not None]
    mean = sum(means) / len(means) if means else None
    return Sample(first.t, min(lows, default=None), max(highs, default=None), mean)


def focus_on(now: Choices, panel: Panel) -> Choices:
    """Focuses a panel; a held log goes on when another one is focused."""
    return now if panel is now.focus else follow(now._replace(focus=panel))


def typed(now: Choices, key: str, text: str) -> Choices:
    """One key, or pasted text, while the filter is being typed."""
    line = now.typing or ""
    if key == "enter":
        return follow(now._replace(typing=None, needle=line.strip()))
    if key == "escape":
        return now._replace(typing=None)
    if key == "backspace":
        return now._replace(typing=line[:-1])
    kept = "".join(char for char in text if char.isprintable())
    return now._replace(typing=(line + kept)[:200])
