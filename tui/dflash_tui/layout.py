"""Where each panel stands at a given size: boxes that tile the screen without a hole."""

from __future__ import annotations

from typing import Final, NamedTuple

from dflash_tui.state import Choices, Panel

MIN_WIDTH: Final = 60
MIN_HEIGHT: Final = 16
WIDE_FROM: Final = 100
XWIDE_FROM: Final = 160
TALL_FROM: Final = 34
PLOT_ROWS: Final = 13
LOWER_ROWS: Final = 11
"""Findings and log of the wide screen, frame included; they grow to `LOWER_MOST`, then the plot."""
LOWER_MOST: Final = 20
USUAL_PIPE_ROWS: Final = 10
"""Eight cards, the queue and the rule: more cards than that give way to findings and log."""


class Box(NamedTuple):
    """A panel's place, frame included."""

    panel: Panel
    x: int
    y: int
    width: int
    height: int
    framed: bool

    def holds(self, x: int, y: int) -> bool:
        """Does this cell belong to the panel?"""
        return self.x <= x < self.x + self.width and self.y <= y < self.y + self.height


def is_small(width: int, height: int) -> bool:
    """Too small for panels."""
    return width < MIN_WIDTH or height < MIN_HEIGHT


def layout(width: int, height: int, top: int, wanted: int, choices: Choices) -> list[Box]:
    """The boxes between the top rows and the key line.

    Args:
        width: cells.
        height: rows of the whole screen.
        top: rows taken by header, banner, why and do.
        wanted: rows that show the whole pipeline.
        choices: zoom decides.
    """
    room = height - top - 1
    framed = width >= WIDE_FROM and height >= TALL_FROM
    if choices.zoom is not None:
        return [Box(choices.zoom, 0, top, width, room, framed)]
    if width >= XWIDE_FROM:
        return _two_columns(width, room, top, wanted, framed=framed)
    if framed:
        return _stack(width, room, top, wanted)
    return _rules(width, room, top, wanted)


def _stack(width: int, room: int, top: int, wanted: int) -> list[Box]:
    """GPUs, plot, and findings beside the log; all in boxes."""
    pipe = min(wanted + 2, max(room - 14, 6))
    rest = room - pipe
    lower = min(max(rest - PLOT_ROWS, LOWER_ROWS), LOWER_MOST)
    plot = rest - lower
    if plot < 8:
        plot = min(8, rest)
        lower = rest - plot
    half = width // 2
    low = top + pipe + plot
    return [
        Box(Panel.PIPELINE, 0, top, width, pipe, framed=True),
        Box(Panel.THROUGHPUT, 0, top + pipe, width, plot, framed=True),
        Box(Panel.FINDINGS, 0, low, half, lower, framed=True),
        Box(Panel.LOG, half, low, width - half, lower, framed=True),
    ]


def _two_columns(width: int, room: int, top: int, wanted: int, *, framed: bool) -> list[Box]:
    """Tall: GPUs over plot, findings over log. Short: GPUs and findings, plot and log."""
    left = max(round(width * 0.6), 104)
    right = width - left
    edge = 2 if framed else 1
    if framed:
        upper = min(wanted + edge, room - 8)
        found = max(room // 3, 6)
        return [
            Box(Panel.PIPELINE, 0, top, left, upper, framed),
            Box(Panel.FINDINGS, left, top, right, found, framed),
            Box(Panel.LOG, left, top + found, right, room - found, framed),
            Box(Panel.THROUGHPUT, 0, top + upper, left, room - upper, framed),
        ]
    upper = min(wanted + edge, max(room - 3, 5))
    lower = room - upper
    boxes = [
        Box(Panel.PIPELINE, 0, top, left, upper, framed),
        Box(Panel.THROUGHPUT, left, top, right, upper, framed),
    ]
    if lower > 0:
        boxes += [
            Box(Panel.FINDINGS, 0, top + upper, left, lower, framed),
            Box(Panel.LOG, left, top + upper, right, lower, framed),
        ]
    return boxes


def _rules(width: int, room: int, top: int, wanted: int) -> list[Box]:
    """One below the other under rules, for narrow or low screens."""
    pipe, plot, found, lines = wanted + 1, 2, 3, 5
    pipe = min(pipe, max(room - plot - found - lines, USUAL_PIPE_ROWS))
    spare = room - pipe - plot - found - lines
    if spare < 0:
        for least_lines, least_found in ((4, 3), (3, 3), (3, 2), (2, 2), (0, 2), (0, 0)):
            lines, found = least_lines, least_found
            if pipe + plot + found + lines <= room:
                break
        pipe = min(pipe, room - plot - found - lines)
        spare = room - pipe - plot - found - lines
    grow = min(spare, 3)
    found, spare = found + grow, spare - grow
    grow = min(spare, 7)
    lines, spare = lines + grow, spare - grow
    grow = min(spare, 9) if spare >= 5 else 0
    plot, lines = plot + grow, lines + spare - grow
    boxes: list[Box] = []
    y = top
    for panel, height in zip(
        (Panel.PIPELINE, Panel.THROUGHPUT, Panel.FINDINGS, Panel.LOG),
        (pipe, plot, found, lines),
        strict=True,
    ):
        if height > 0:
            boxes.append(Box(panel, 0, y, width, height, framed=False))
            y += height
    return boxes
