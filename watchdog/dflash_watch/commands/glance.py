"""Two looks a few seconds apart: what `check` stands on, and what so short a look may claim."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import msgspec

from dflash_watch.agent.find import SEVERAL
from dflash_watch.clock import Clock
from dflash_watch.commands.request import Request
from dflash_watch.errors import UsageError
from dflash_watch.frame import Frame, LinkChange, Record
from dflash_watch.journal import note_nothing
from dflash_watch.model import Confidence, Evidence, EvidenceKind, Snapshot, Source, Verdict
from dflash_watch.place import TargetChoice
from dflash_watch.session import Session
from dflash_watch.transport.base import Stream
from dflash_watch.units import duration

if TYPE_CHECKING:
    from dflash_watch.engine import Engine
    from dflash_watch.live import Live

POLL_S = 0.2
UNTAUGHT_S, BEFORE_STEPS_S = 8.0, 60.0
"""Silence from which on stillness is no longer nothing, while no pace of the run is known."""
SETTLED = (Verdict.CRASHED, Verdict.FINISHED, Verdict.BLIND)


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


def look_twice(
    request: Request, clock: Clock, patience: Patience, early: Stream | None
) -> tuple[Live, Engine]:
    """The loop after the looks; takes no stacks and keeps nothing."""
    session = Session(request.place, request.target, request.every_s, clock, early=early)
    try:
        first = wait_for_frame(session, patience)
        # Loaded after the first look, in the seconds up to the last: earlier it would take
        # processor time from those who make the connection.
        from dflash_watch.actions import Actions  # noqa: PLC0415
        from dflash_watch.agent.bundle import keep_compiled  # noqa: PLC0415
        from dflash_watch.engine import Engine  # noqa: PLC0415
        from dflash_watch.live import Live  # noqa: PLC0415
        from dflash_watch.playbooks import load_playbooks  # noqa: PLC0415
        from dflash_watch.render import check, jsonl  # noqa: F401, PLC0415 - needed at the end

        actions = Actions(None, note_nothing, clock)
        engine = Engine(request.options, load_playbooks(), takes_stacks=False)
        live = Live(session, engine, clock, actions=actions)
        for record in first:
            live.advance(record)
        if not patience(live):
            keep_compiled()
            live.run(threading.Event(), patience)
    finally:
        session.close()
    return live, engine


def wait_for_frame(session: Session, patience: Patience) -> list[Record]:
    """Records up to the first frame, or until the way is lost."""
    records: list[Record] = []
    while not patience.is_over() and not (records and is_answer(records[-1])):
        try:
            record = session.get(POLL_S)
        except EOFError:
            break
        if record is not None:
            records.append(record)
    return records


def refuse_several(target: TargetChoice, frame: Frame | None) -> None:
    """Nothing unless the process asked for is a shell or the like above several programs.

    Raises:
        UsageError: lists them.
    """
    note = frame.run.note if target.pid is not None and frame is not None else None
    if note is not None and frame is not None and frame.run.state == "none" and SEVERAL in note:
        raise UsageError(f"--pid {target.pid}: {note}", hint="name one of them with --pid")


def is_answer(record: Record) -> bool:
    """The first look, or that there will be none."""
    is_lost = isinstance(record, LinkChange) and record.state in ("lost", "closed")
    return is_lost or isinstance(record, Frame)


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


def is_undecided(snapshot: Snapshot, engine: Engine) -> bool:
    """Silent, nothing moved, and nothing tells how long this run's silences usually are.

    A step that is on its way in a remote place looks the same as a deadlock then.
    """
    window, progress = engine.window, engine.progress
    if snapshot.verdict in SETTLED or snapshot.verdict is Verdict.STALLED:
        return False
    if progress.phase is not None or (progress.work.moves is not False and not spins(engine)):
        return False
    silent_s = progress.age_s(window)
    if silent_s is None:
        return (window.logs.silent_s(window.data_t) or 0.0) > BEFORE_STEPS_S
    return silent_s > UNTAUGHT_S and not engine.limits.is_taught("training")


def spins(engine: Engine) -> str | None:
    """The card of the run that seems to do nothing at full use.

    A thread that waits for it spins as well, and looks like work.
    """
    cards = engine.window.gpus.used(engine.window.tracks.pids())
    return next((f"gpu{index}" for index, card in cards.items() if card.seems_to_spin), None)


def admit(snapshot: Snapshot, card: str | None = None) -> Snapshot:
    """The snapshot of a look that cannot decide: it says so, and is sure of nothing.

    Args:
        snapshot: of both looks.
        card: what `spins` named.
    """
    seen = "nothing moves" if card is None else f"{card} reads 100 % and does nothing"
    summary = f"cannot tell from one look: {seen}, {snapshot.summary}; look again, or watch"
    return msgspec.structs.replace(snapshot, summary=summary, confidence=Confidence.LOW)
