"""`dflash-watch fleet FILE`: many runs watched by one process, told in lines, the worst first."""

from __future__ import annotations

import contextlib
import ctypes
import threading
from argparse import Namespace
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from dflash_watch import journal
from dflash_watch.actions import Actions
from dflash_watch.clock import Clock, SystemClock
from dflash_watch.commands.context import (
    STDOUT,
    Context,
    incidents_dir,
    stop_on_signals,
    write_line,
)
from dflash_watch.commands.fleetfile import Member, read_fleet
from dflash_watch.commands.glance import Patience, admit, explain_absence, is_undecided, temper
from dflash_watch.commands.lines import LINES_THAT_MAY_WAIT, is_unread
from dflash_watch.commands.looking import CLOSE_S, Shared, open_run
from dflash_watch.commands.notices import speak
from dflash_watch.commands.values import parse_number
from dflash_watch.commands.watch import END_CODES
from dflash_watch.engine import Engine
from dflash_watch.errors import EXIT_CRITICAL, EXIT_OK, EXIT_UNKNOWN
from dflash_watch.fleet import Fleet, Until, Watched
from dflash_watch.journal import JournalFile, note_nothing
from dflash_watch.live import Live, is_over
from dflash_watch.outlet import Outlet
from dflash_watch.playbooks import load_playbooks
from dflash_watch.render.fleettable import (
    RANK,
    Row,
    essence,
    render_row_json,
    render_table,
    row_cells,
    worst_code,
    worst_first,
)
from dflash_watch.session import Session

ARRIVING_S = 15.0
"""The first table waits so long for the last run."""
SIGN_OF_LIFE_S = 60.0
M_ARENA_MAX, M_MMAP_THRESHOLD = -8, -3
"""Of mallopt(3)."""
LARGE_BYTES = 256 << 10


def run(given: Namespace, context: Context) -> int:
    """Watch all of the file; 0 when asked to stop, else the worst of how they are or ended."""
    every_s = parse_number("--table-every-s", given.table_every_s, 1, 86400)
    window_s = parse_number("--window-s", given.window_s, 0.5, 600)
    members = read_fleet(Path(given.file), context.environment)
    notices, stop, clock = speak(), stop_on_signals(), SystemClock()
    lines = FleetLines(
        members, clock, stop, every_s=every_s, as_json=given.json, has_colour=context.has_colour
    )
    try:
        if given.once:
            rows = look_once(members, clock, stop, window_s)
            lines.show(rows)
            return worst_code(rows) if not stop.is_set() else EXIT_OK
        rows = watch_all(members, clock, stop, lines, until_end=given.until_end)
        return EXIT_OK if stop.is_set() else worst_end(rows)
    finally:
        lines.close(CLOSE_S)
        notices.finish(0.2)


def watch_all(
    members: list[Member],
    clock: Clock,
    stop: threading.Event,
    lines: FleetLines,
    *,
    until_end: bool,
) -> list[Row]:
    """The rows at the end of the watching."""
    share_arenas()
    playbooks = load_playbooks()
    files: dict[Path, JournalFile] = {}

    def opener(member: Member) -> Callable[[], contextlib.AbstractContextManager[Live]]:
        folder = incidents_dir(member.given.incidents)
        file = files.setdefault(folder, JournalFile(folder / journal.NAME))
        shared = Shared(folder, file, playbooks)

        @contextlib.contextmanager
        def open_one() -> Iterator[Live]:
            with open_run(member.request, member.given, shared, member.hook, member.name) as look:
                yield look.live
                if not stop.is_set():
                    look.actions.finish()

        return open_one

    runs = [Watched(one.name, one.request.place.label(), opener(one)) for one in members]
    fleet = Fleet(runs, clock, lines, (lambda: is_over) if until_end else None)
    try:
        fleet.run(stop)
    finally:
        for file in files.values():
            file.close(CLOSE_S)
    return fleet.rows()


def share_arenas() -> None:
    """Threads share two heaps of the C library, and what is large is given back when it is freed.

    Otherwise holes stay: 10 to 50 MB with eight runs, each of which was sent py-spy once.
    """
    with contextlib.suppress(AttributeError, OSError):  # not the GNU library: other habits
        library = ctypes.CDLL(None)
        library.mallopt(M_ARENA_MAX, 2)
        library.mallopt(M_MMAP_THRESHOLD, LARGE_BYTES)


def look_once(
    members: list[Member], clock: Clock, stop: threading.Event, window_s: float
) -> list[Row]:
    """What `check` would say of each: two looks, no stacks, nothing kept."""
    playbooks = load_playbooks()
    looks: dict[str, tuple[Live, Engine, Patience]] = {}

    def opener(member: Member) -> Callable[[], contextlib.AbstractContextManager[Live]]:
        @contextlib.contextmanager
        def open_one() -> Iterator[Live]:
            request = msgspec.structs.replace(member.request, every_s=max(window_s / 4, 0.2))
            session = Session(request.place, request.target, request.every_s, clock)
            engine = Engine(request.options, playbooks, takes_stacks=False)
            live = Live(session, engine, clock, actions=Actions(None, note_nothing, clock))
            looks[member.name] = live, engine, patience
            try:
                yield live
            finally:
                session.close()

        patience = Patience(clock, window_s, window_s + 30.0)
        return open_one

    def until() -> Until:
        return lambda live: next(p for one, _, p in looks.values() if one is live)(live)

    runs = [Watched(one.name, one.request.place.label(), opener(one)) for one in members]
    fleet = Fleet(runs, clock, lambda _row: None, until)
    fleet.run(stop)
    return [tempered(row, looks.get(row.name)) for row in fleet.rows()]


def tempered(row: Row, look: tuple[Live, Engine, Patience] | None) -> Row:
    """The row with what a short look cannot show said as missing."""
    if row.snapshot is None or look is None:
        return row
    live, engine, patience = look
    shot = temper(explain_absence(row.snapshot, live), patience.seen_s, patience.steps)
    if is_undecided(shot, engine):
        return msgspec.structs.replace(row, snapshot=admit(shot), trouble=admit(shot).summary)
    return msgspec.structs.replace(row, snapshot=shot)


def worst_end(rows: list[Row]) -> int:
    """How the runs ended: 2 when one crashed, 3 when it cannot be told of one, else 0."""
    codes = [
        EXIT_UNKNOWN
        if row.snapshot is None or row.trouble is not None
        else END_CODES.get(row.snapshot.verdict, EXIT_UNKNOWN)
        for row in rows
    ]
    return min(codes, key=lambda code: RANK[code], default=EXIT_CRITICAL)


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
