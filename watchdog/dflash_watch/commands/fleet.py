"""`dflash-watch fleet FILE`: many runs watched by one process, told in lines, the worst first."""

from __future__ import annotations

import contextlib
import ctypes
import threading
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from dflash_watch import journal
from dflash_watch.actions import Actions
from dflash_watch.clock import Clock, SystemClock
from dflash_watch.commands.context import (
    Context,
    incidents_dir,
    stop_on_signals,
)
from dflash_watch.commands.fleetfile import Member, read_fleet
from dflash_watch.commands.fleetlines import FleetLines
from dflash_watch.commands.glance import Patience, admit, explain_absence, is_undecided, temper
from dflash_watch.commands.looking import CLOSE_S, Shared, open_run
from dflash_watch.commands.notices import speak
from dflash_watch.commands.values import parse_number
from dflash_watch.commands.watch import END_CODES
from dflash_watch.engine import Engine
from dflash_watch.errors import EXIT_CRITICAL, EXIT_OK, EXIT_UNKNOWN
from dflash_watch.fleet import Fleet, Watched
from dflash_watch.journal import JournalFile, note_nothing
from dflash_watch.live import Live, is_over
from dflash_watch.playbooks import load_playbooks
from dflash_watch.render.fleettable import (
    RANK,
    Row,
    worst_code,
)
from dflash_watch.session import Session
from dflash_watch.transport.ask import ask_on_terminal, taking_turns

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
    ask = taking_turns(ask_on_terminal)

    def opener(member: Member) -> Callable[[], contextlib.AbstractContextManager[Live]]:
        folder = incidents_dir(member.given.incidents)
        file = files.setdefault(folder, JournalFile(folder / journal.NAME))
        shared = Shared(folder, file, playbooks, ask)

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
    # Both grow from the threads of the runs: asked by key only, never walked through.
    looks: dict[str, tuple[Live, Engine, Patience]] = {}
    patience_of: dict[Live, Patience] = {}
    ask = taking_turns(ask_on_terminal)

    def opener(member: Member) -> Callable[[], contextlib.AbstractContextManager[Live]]:
        @contextlib.contextmanager
        def open_one() -> Iterator[Live]:
            request = msgspec.structs.replace(member.request, every_s=max(window_s / 4, 0.2))
            session = Session(request.place, request.target, request.every_s, clock, ask=ask)
            engine = Engine(request.options, playbooks, takes_stacks=False)
            live = Live(session, engine, clock, actions=Actions(None, note_nothing, clock))
            patience = Patience(clock, window_s, window_s + 30.0)  # from now: starts are apart
            looks[member.name], patience_of[live] = (live, engine, patience), patience
            try:
                yield live
            finally:
                session.close()

        return open_one

    runs = [Watched(one.name, one.request.place.label(), opener(one)) for one in members]
    fleet = Fleet(runs, clock, lambda _row: None, lambda: lambda live: patience_of[live](live))
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
