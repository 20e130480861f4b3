"""What a fleet says: a line a change, all of it now and then; or objects."""

from __future__ import annotations

import threading
from datetime import UTC, datetime

from dflash_watch.clock import Clock
from dflash_watch.commands.context import STDOUT, write_line
from dflash_watch.commands.fleetfile import Member
from dflash_watch.commands.lines import LINES_THAT_MAY_WAIT, is_unread
from dflash_watch.outlet import Outlet
from dflash_watch.render.fleettable import (
    Row,
    essence,
    render_row_json,
    render_table,
    row_cells,
    worst_first,
)

ARRIVING_S = 15.0
"""The first table waits so long for the last run."""
SIGN_OF_LIFE_S = 60.0


class FleetLines:
    """Tells what changed, and now and then all of it; a reader that is slow holds up nobody.

    Args:
        members: the runs.
        clock: this machine's.
        stop: set when the reader is gone.
        every_s: between two tables while nothing changes.
        as_json: an object a line, no tables.
        has_colour: the terminal takes colours.
    """

    def __init__(
        self,
        members: list[Member],
        clock: Clock,
        stop: threading.Event,
        *,
        every_s: float,
        as_json: bool,
        has_colour: bool,
    ) -> None:
        self._clock, self._stop, self._every_s = clock, stop, every_s
        self._as_json, self._has_colour = as_json, has_colour and not as_json
        self._rows = {
            one.name: Row(name=one.name, where=one.request.place.label()) for one in members
        }
        self._said: dict[str, tuple[tuple[object, ...], float]] = {}
        self._began_s, self._table_s = clock.monotonic_s(), float("-inf")
        self._lock = threading.Lock()
        self._outlet: Outlet[str] = Outlet(
            "lines", self._write, capacity=LINES_THAT_MAY_WAIT, on_end=lambda _error: stop.set()
        )

    def __call__(self, row: Row) -> None:
        """Queue what this row is worth."""
        with self._lock:
            self._rows[row.name] = row
            now_s = self._clock.monotonic_s()
            if not self._as_json and not self._is_begun(now_s):
                return
            said, said_s = self._said.get(row.name, (None, float("-inf")))
            is_new = essence(row) != said
            is_due = self._as_json and now_s - said_s >= SIGN_OF_LIFE_S
            if is_arriving(row) or not (is_new or is_due):
                return
            if is_unread(STDOUT):
                self._stop.set()
            self._said[row.name] = essence(row), now_s
            self._outlet.put(render_row_json(row) if self._as_json else self._change(row))

    def show(self, rows: list[Row]) -> None:
        """All of them as they are."""
        if self._as_json:
            for row in worst_first(rows):
                self._outlet.put(render_row_json(row))
        else:
            self._outlet.put(render_table(rows, is_coloured=self._has_colour))

    def close(self, timeout_s: float) -> None:
        """Let the last lines out."""
        self._outlet.close(timeout_s)

    def _is_begun(self, now_s: float) -> bool:
        """Has the first table been shown? It, and later ones, are shown here when due."""
        rows = list(self._rows.values())
        is_first = self._table_s == float("-inf")
        waits = any(is_arriving(row) for row in rows) and now_s - self._began_s < ARRIVING_S
        if is_first and waits:
            return False
        if now_s - self._table_s >= self._every_s:
            self._table_s = now_s
            self.show(rows)
            self._said = {row.name: (essence(row), now_s) for row in rows if not is_arriving(row)}
        return True

    def _change(self, row: Row) -> str:
        word, name, where, since, _, _, what = row_cells(row)
        moment = datetime.fromtimestamp(self._clock.wall_s(), UTC).astimezone()
        told = f"{moment:%H:%M:%S}  {word:<12}  {name} ({where})  {what}"
        return f"{told}  (for {since})" if since else told

    def _write(self, line: str) -> None:
        write_line(line, has_colour=self._has_colour)


def is_arriving(row: Row) -> bool:
    """Nothing is known yet, and nothing went wrong: a connection being made is no news."""
    shot = row.snapshot
    if row.trouble is not None:
        return False
    return shot is None or (shot.data_t is None and shot.link.state in ("connecting", "up"))
