"""`dflash-watch check`: two looks a few seconds apart, one line, a plugin's exit code.

The connection is started before the rest of this program is loaded: half of a check's time is its
own start and half that of the way there, and the two need not wait for each other.
"""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from dflash_watch.agent.stub import ENTRY_SCRIPT
from dflash_watch.commands.choice import build_place, build_target
from dflash_watch.commands.values import parse_number
from dflash_watch.errors import EXIT_CRITICAL, EXIT_UNKNOWN, LinkError
from dflash_watch.transport.way import enter_early

if TYPE_CHECKING:
    from dflash_watch.commands.context import Context
    from dflash_watch.transport.base import Stream

LOOKS = 4
"""In the window: some things are believed only when seen several times in a row."""


def run(given: Namespace, _context: Context) -> int:
    """Look twice and say what is there; 0 fine, 1 warning, 2 critical, 3 cannot tell."""
    window_s = parse_number("--window-s", given.window_s, 0.5, 600)
    deadline_s = parse_number("--deadline-s", given.deadline_s, 1, 3600)
    place, _ = build_place(given), build_target(given)
    early = enter_early(place, ("sh", "-c", ENTRY_SCRIPT))
    try:
        return look(given, window_s, deadline_s, early)
    finally:
        if early is not None:
            early.close()


def look(given: Namespace, window_s: float, deadline_s: float, early: Stream | None) -> int:
    """The check itself, on a way that may have been opened already."""
    import msgspec  # noqa: PLC0415 - from here on while the way is being opened

    from dflash_watch.clock import SystemClock  # noqa: PLC0415
    from dflash_watch.commands.context import interrupt_on_signals, write_line  # noqa: PLC0415
    from dflash_watch.commands.glance import (  # noqa: PLC0415
        Patience,
        admit,
        explain_absence,
        is_undecided,
        look_twice,
        refuse_several,
        spins,
        temper,
    )
    from dflash_watch.commands.request import build_request  # noqa: PLC0415
    from dflash_watch.units import duration  # noqa: PLC0415

    interrupt_on_signals()
    request = msgspec.structs.replace(build_request(given), every_s=max(window_s / LOOKS, 0.2))
    clock = SystemClock()
    patience = Patience(clock, window_s, deadline_s)
    live, engine = look_twice(request, clock, patience, early)
    refuse_several(request.target, live.frame)
    if live.snapshot is None:
        raise LinkError(f"no answer within {duration(deadline_s)}")
    snapshot = temper(explain_absence(live.snapshot, live), patience.seen_s, patience.steps)
    from dflash_watch.render.check import exit_code, render_check  # noqa: PLC0415
    from dflash_watch.render.jsonl import render_json  # noqa: PLC0415

    code = exit_code(snapshot)
    if code != EXIT_CRITICAL and is_undecided(snapshot, engine):
        snapshot, code = admit(snapshot, spins(engine)), EXIT_UNKNOWN
    write_line(render_json(snapshot) if given.json else render_check(snapshot, code))
    return code
