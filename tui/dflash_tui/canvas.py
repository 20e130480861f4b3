"""The one widget: draws composed rows by the line API and repaints only the cells that changed."""

from __future__ import annotations

from collections.abc import Sequence

from rich.segment import Segment
from textual import events
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from dflash_tui.cells import Ink, Row, row_width, width
from dflash_tui.theme import style_of, to_ascii


def changed_span(before: Row, after: Row) -> tuple[int, int] | None:
    """First changed cell and one past the last, of two rows of equal width; None when equal."""
    if before == after:
        return None
    whole = row_width(after)
    if row_width(before) != whole:
        return 0, max(whole, row_width(before))
    left = 0
    for old, new in zip(before, after, strict=False):
        if old != new:
            break
        left += width(new.text)
    right = whole
    for old, new in zip(reversed(before), reversed(after), strict=False):
        if old != new:
            break
        right -= width(new.text)
    return left, max(right, left + 1)


class Canvas(Widget):
    """The screen's cells. The app composes rows; the canvas shows them."""

    DEFAULT_CSS = "Canvas { width: 100%; height: 100%; }"
    can_focus = True

    class Resized(Message):
        """The canvas has another size: compose again."""

    class Pressed(Message):
        """A cell was clicked."""

        def __init__(self, x: int, y: int) -> None:
            self.x, self.y = x, y
            super().__init__()

    class Wheeled(Message):
        """The wheel turned over a cell."""

        def __init__(self, x: int, y: int, rows: int) -> None:
            self.x, self.y, self.rows = x, y, rows
            super().__init__()

    def __init__(self, *, ascii_only: bool) -> None:
        super().__init__()
        self._rows: Sequence[Row] = ()
        self._palette = "dark"
        self._ascii_only = ascii_only

    def show(self, rows: Sequence[Row], palette: str) -> None:
        """Takes new rows; asks for a repaint of what differs."""
        before, self._rows = self._rows, rows
        if palette != self._palette or len(before) != len(rows):
            self._palette = palette
            self.refresh()
            return
        regions = []
        for y, (old, new) in enumerate(zip(before, rows, strict=True)):
            span = changed_span(old, new)
            if span is not None:
                regions.append(Region(span[0], y, span[1] - span[0], 1))
        if regions:
            self.refresh(*regions)

    def render_line(self, y: int) -> Strip:
        """One row as a strip."""
        if y >= len(self._rows):
            return Strip.blank(self.size.width, style_of(self._palette, Ink.TEXT))
        spell = to_ascii if self._ascii_only else str
        row = self._rows[y]
        segments = [Segment(spell(span.text), style_of(self._palette, span.ink)) for span in row]
        return Strip(segments, row_width(row))

    def on_resize(self) -> None:
        """Another size, other rows."""
        self.post_message(self.Resized())

    def on_click(self, event: events.Click) -> None:
        """Which cell."""
        self.post_message(self.Pressed(event.x, event.y))

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Towards older lines."""
        self.post_message(self.Wheeled(event.x, event.y, 3))

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Towards newer lines."""
        self.post_message(self.Wheeled(event.x, event.y, -3))
