"""`dflash-watch check`: two looks a few seconds apart, one line, a plugin's exit code."""

from __future__ import annotations

import threading
from argparse import Namespace
from typing import TYPE_CHECKING

import msgspec

from dflash_watch.clock import Clock, SystemClock
from dflash_watch.commands.context import Context, interrupt_on_signals, write_line
from dflash_watch.commands.request import Request, build_request
from dflash_watch.commands.values import parse_number
from dflash_watch.errors import LinkError
from dflash_watch.frame import LinkChange, Record
from dflash_watch.model import Confidence, Evidence, EvidenceKind, Snapshot, Source, Verdict
from dflash_watch.session import Session
from dflash_watch.units import duration

if TYPE_CHECKING:
    from dflash_watch.live import Live

POLL_S = 0.2
HAND_OVER_S = 0.05
"""For the agent to be on its way before this process gets busy."""
LOOKS = 4
"""In the window: some things are believed only when seen several times in a row."""
SETTLED = (Verdict.CRASHED, Verdict.FINISHED, Verdict.BLIND)


def run(given: Namespace, _context: Context) -> int:
    """Look twice and say what is there; 0 fine, 1 warning, 2 critical, 3 cannot tell."""
    window_s = parse_number("--window-s", given.window_s, 0.5, 600)
    deadline_s = parse_number("--deadline-s", given.deadline_s, 1, 3600)
    request = msgspec.structs.replace(build_request(given), every_s=max(window_s / LOOKS, 0.2))
    clock = SystemClock()
    patience = Patience(clock, window_s, deadline_s)
    live = look_twice(request, clock, patience)
    if live.snapshot is None:
        raise LinkError(f"no answer within {duration(deadline_s)}")
    snapshot = temper(explain_absence(live.snapshot, live), patience.seen_s, patience.steps)
    from dflash_watch.render.check import exit_code, render_check  # noqa: PLC0415
    from dflash_watch.render.jsonl import render_json  # noqa: PLC0415

    write_line(render_json(snapshot) if given.json else render_check(snapshot))
    return exit_code(snapshot)


class Patience:
    """Decides when enough was seen: two frames `window_s` apart, or the deadline, or no way in."""

    def __init__(self, clock: Clock, window_s: float, deadline_s: float) -> None:
        self._clock, self._window_s = clock, window_s
        self._end_s = clock.monotonic_s() + deadline_s
        self._first_t: float | None = None
        self._first_step: int | None = None
        self.seen_s = 0.0
        self.steps = 0

    def is_over(self) -> bool:
        """The deadline has passed."""
        return self._clock.monotonic_s() >= self._end_s

    def __call__(self, live: Live) -> bool:
        """Nothing more is worth waiting for."""
        snapshot, link = live.snapshot, live.link
        is_lost = link is not None and link.state in ("lost", "closed")
        if is_lost or self.is_over():
            return True
        if live.frame is None or snapshot is None or snapshot.data_t is None:
            return False
        if live.frame.run.state == "none":
            return live.frames >= 2
        if self._first_t is None:
            self._first_t, self._first_step = snapshot.data_t, snapshot.board.step
        self.seen_s = snapshot.data_t - self._first_t
        if snapshot.board.step is not None and self._first_step is not None:
            self.steps = snapshot.board.step - self._first_step
        # Frames come a few milliseconds early or late; nobody waits a whole window for those.
        return self.seen_s >= 0.9 * self._window_s


def look_twice(request: Request, clock: Clock, patience: Patience) -> Live:
    """The loop after the looks; takes no stacks and keeps nothing."""
    interrupt_on_signals()
    session = Session(request.place, request.target, request.every_s, clock)
    try:
        early = wait_for_agent(session, patience)
        # Loaded while the agent starts over there: a tenth of a second that nobody waits for. Any
        # earlier it would hold up the thread that connects.
        from dflash_watch.actions import Actions, Journal  # noqa: PLC0415
        from dflash_watch.engine import Engine  # noqa: PLC0415
        from dflash_watch.live import Live  # noqa: PLC0415
        from dflash_watch.playbooks import load_playbooks  # noqa: PLC0415

        actions = Actions(None, Journal(None, clock, ""), clock)
        live = Live(session, Engine(request.options, load_playbooks()), clock, actions=actions)
        for record in early:
            live.advance(record)
        if not patience(live):
            live.run(threading.Event(), patience)
    finally:
        session.close()
    return live


def wait_for_agent(session: Session, patience: Patience) -> list[Record]:
    """Records up to the moment from which mostly the other side works, or the way is lost."""
    records: list[Record] = []
    timeout_s = POLL_S
    while not patience.is_over():
        try:
            record = session.get(timeout_s)
        except EOFError:
            break
        if record is None and timeout_s == HAND_OVER_S:
            break
        if record is not None:
            records.append(record)
            timeout_s = POLL_S if is_step_of_ours(record) else HAND_OVER_S
    return records


def is_step_of_ours(record: Record) -> bool:
    """A step of the connection that needs this process, before anything starts over there."""
    if not isinstance(record, LinkChange) or record.state != "connecting":
        return False
    return record.step not in ("container", "agent")


def explain_absence(snapshot: Snapshot, live: Live) -> Snapshot:
    """The snapshot; when no look succeeded, its summary is the plain reason."""
    if live.frames:
        return snapshot
    reason = live.link.reason if live.link is not None else None
    return msgspec.structs.replace(snapshot, summary=reason or "no answer in time")


def temper(snapshot: Snapshot, seen_s: float, steps: int) -> Snapshot:
    """The snapshot with what two looks cannot show: said as missing evidence, and less sure.

    An end, a lost view and steps that were seen to go on need no longer look.
    """
    if snapshot.verdict in SETTLED or steps > 0:
        return snapshot
    missing = Evidence(
        kind=EvidenceKind.MISSING,
        text=f"a longer look: only {duration(seen_s)} were seen, and no step fell into them",
        source=Source.PROCESS,
    )
    sure = snapshot.confidence
    return msgspec.structs.replace(
        snapshot,
        evidence=(*snapshot.evidence, missing),
        confidence=Confidence.MEDIUM if sure is Confidence.HIGH else sure,
    )
