"""`dflash-watch dump`: the stacks of a run now, with the reading of them."""

from __future__ import annotations

import logging
from argparse import Namespace

from dflash_watch.actions import Actions
from dflash_watch.clock import Clock, SystemClock
from dflash_watch.commands.context import Context, incidents_dir, interrupt_on_signals, write_line
from dflash_watch.commands.glance import refuse_several
from dflash_watch.commands.request import build_request
from dflash_watch.commands.values import parse_number
from dflash_watch.errors import EXIT_OK, EXIT_UNKNOWN, LinkError, WatchError
from dflash_watch.frame import Frame, LinkChange, Record, StackSample, render_record
from dflash_watch.guard import Guard
from dflash_watch.journal import NAME, Journal, JournalFile
from dflash_watch.model import StackRequest
from dflash_watch.place import TargetChoice
from dflash_watch.readers.lines import escaped
from dflash_watch.render.stacktext import render_dump
from dflash_watch.session import Session

MAX_PROCESSES = 16
CLOSE_S = 0.3
logger = logging.getLogger(__name__)


class Dump:
    """Collects frames and samples from a session until a deadline."""

    def __init__(self, session: Session, actions: Actions, clock: Clock, deadline_s: float) -> None:
        self._session, self._actions, self._clock = session, actions, clock
        self._end_s = clock.monotonic_s() + deadline_s
        self._deadline_s = deadline_s
        self._guard = Guard()

    def first_frame(self, target: TargetChoice) -> Frame:
        """The first frame in which a run is found.

        Raises:
            WatchError: no way in, or no run; says which.
            UsageError: several programs run below the process that was named.
        """
        newest: Frame | None = None
        while (record := self._next()) is not None:
            if isinstance(record, LinkChange) and record.state in ("lost", "closed"):
                raise LinkError(record.reason or "the connection was lost")
            if isinstance(record, Frame):
                if record.run.state == "found" and record.processes:
                    return record
                refuse_several(target, record)
                if newest is not None or record.run.state != "found":
                    raise WatchError(
                        record.run.note or f"no run: {record.run.state}",
                        hint="name it with --run-dir, --pid, --match or --log",
                    )
                newest = record
        raise LinkError(f"no answer within {self._deadline_s:g} s")

    def take(self, pids: list[int], label: str, *, native: bool = False) -> list[StackSample]:
        """One sample of each process; those that do not come in time are left out."""
        for pid in pids:
            want = StackRequest(label=label, pid=pid, reason="dump", native=native)
            self._actions.take_stacks(want)
        missing, samples = set(pids), []
        while missing and (record := self._next()) is not None:
            if isinstance(record, StackSample) and record.pid in missing and record.label == label:
                missing.discard(record.pid)
                self._actions.arrived(record)
                samples.append(record)
        return samples

    def rest(self, seconds: float) -> None:
        """Let time pass between two samples."""
        end_s = min(self._clock.monotonic_s() + seconds, self._end_s)
        while self._clock.monotonic_s() < end_s:
            self._session.get(max(end_s - self._clock.monotonic_s(), 0.0))

    def _next(self) -> Record | None:
        while (left_s := self._end_s - self._clock.monotonic_s()) > 0:
            record = self._session.get(min(left_s, 0.2))
            if record is not None:
                return self._guard.admit(record)
        return None


def run(given: Namespace, _context: Context) -> int:
    """Take stacks of every Python process of the run; 0 when at least one could be read."""
    request = build_request(given)
    count = int(parse_number("--samples", given.samples, 1, 10))
    apart_s = parse_number("--apart-s", given.apart_s, 0.1, 60)
    deadline_s = parse_number("--deadline-s", given.deadline_s, 1, 600)
    interrupt_on_signals()
    clock = SystemClock()
    file = JournalFile(incidents_dir(None) / NAME)
    note = Journal(file, clock, request.place.label())
    session = Session(request.place, request.target, request.every_s, clock, note=note)
    try:
        dump = Dump(session, Actions(session, note, clock), clock, deadline_s)
        frame = dump.first_frame(request.target)
        pids = choose_pids(frame)
        samples: list[StackSample] = []
        for number in range(1, count + 1):
            if number > 1:
                dump.rest(apart_s)
            samples += dump.take(pids[:MAX_PROCESSES], str(number), native=given.native)
    finally:
        session.close()
        file.close(CLOSE_S)
    if len(pids) > MAX_PROCESSES:
        rest = len(pids) - MAX_PROCESSES
        logger.warning("%d processes, %d of them not sampled: name one by --pid", len(pids), rest)
    show(frame, samples, as_json=given.json)
    return EXIT_OK if any(sample.error is None for sample in samples) else EXIT_UNKNOWN


def choose_pids(frame: Frame) -> list[int]:
    """The run's Python processes, else its main process: the order of the tree."""
    alive = [one for one in frame.processes or () if one.state not in ("Z", "X")]
    pids = [one.pid for one in alive if one.is_python]
    if not pids and frame.run.root_pid is not None:
        pids = [frame.run.root_pid]
    return pids


def show(frame: Frame, samples: list[StackSample], *, as_json: bool) -> None:
    """The samples on standard output, as JSON lines or as text with their reading."""
    if as_json:
        for sample in samples:
            write_line(escaped(render_record(sample).decode()))
        return
    write_line(render_dump(frame, samples))
