"""Everything that a live look needs, put together and taken apart again."""

from __future__ import annotations

import contextlib
import errno
import logging
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from dflash_watch import journal
from dflash_watch.actions import STALE_S, Actions, Told
from dflash_watch.bundle import IncidentWriter
from dflash_watch.clock import SystemClock
from dflash_watch.commands.context import incidents_dir
from dflash_watch.commands.keeping import Shelf
from dflash_watch.commands.memory import Memory
from dflash_watch.commands.recording import Recorder
from dflash_watch.commands.request import Request
from dflash_watch.engine import Engine
from dflash_watch.frame import Record, StackSample
from dflash_watch.hook import Hook
from dflash_watch.journal import Journal, JournalFile, Note, read_journal
from dflash_watch.live import Live
from dflash_watch.model import Snapshot
from dflash_watch.place import TargetChoice
from dflash_watch.playbooks import Playbook, load_playbooks
from dflash_watch.session import Session
from dflash_watch.transport.ask import Ask, ask_on_terminal

CLOSE_S = 0.3
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """A session with its engine, ready to run."""

    live: Live
    target: TargetChoice
    actions: Actions


@contextlib.contextmanager
def open_look(request: Request, given: Namespace, hook: Hook | None) -> Iterator[Look]:
    """Everything wired; on leaving, what still waits is written and the agent ends."""
    folder = incidents_dir(given.incidents)
    file = JournalFile(folder / journal.NAME)
    try:
        with open_run(request, given, Shared(folder, file, load_playbooks()), hook) as look:
            yield look
    finally:
        file.close(CLOSE_S)


class Shared(NamedTuple):
    """What all runs of one process have in common."""

    folder: Path
    """Of incidents."""
    file: JournalFile
    playbooks: Mapping[str, Playbook]
    ask: Ask = ask_on_terminal


@contextlib.contextmanager
def open_run(
    request: Request, given: Namespace, shared: Shared, hook: Hook | None, name: str | None = None
) -> Iterator[Look]:
    """One run, wired; `name` tells it from the others of a fleet."""
    clock, label = SystemClock(), request.place.label()
    note = Journal(shared.file, clock, label, name)
    place = request.place._replace(host_side=not given.no_host_agent)
    session = Session(place, request.target, request.every_s, clock, ask=shared.ask, note=note)
    actions = Actions(
        session,
        note,
        clock,
        hook=hook,
        dry_run=given.dry_run,
        told=read_told(shared.file.path, label, clock) if hook is not None else None,
        stale_s=max(STALE_S, 2.5 * request.every_s),
    )
    memory = Memory(request, shared.folder, clock, is_kept=not given.dry_run)
    shelf = build_shelf(request, shared, note, dry_run=given.dry_run)
    shelf.settle(memory.settled())
    engine = build_engine(request, shared, memory)
    recorder = Recorder(given.record, request.options, clock) if given.record else None
    live = Live(session, engine, clock, actions=actions, record=recorder, keeper=shelf)
    live.acknowledged |= memory.kept.acknowledged

    def remember(_snapshot: Snapshot | None = None) -> None:
        memory.save(engine, shelf.paths(), live.acknowledged)

    live.attach(remember)
    try:
        yield Look(live=live, target=request.target, actions=actions)
    finally:
        actions.close()
        shelf.close(CLOSE_S)
        remember()
        memory.close(engine, CLOSE_S)
        if recorder is not None:
            recorder.close(CLOSE_S)
        session.close()


def build_engine(request: Request, shared: Shared, memory: Memory) -> Engine:
    """An engine that goes on from what an earlier watcher left."""
    return Engine(
        request.options,
        shared.playbooks,
        limits=memory.limits,
        profiles=memory.profiles,
        remembered=memory.kept.remembered,
    )


def build_shelf(request: Request, shared: Shared, note: Note, *, dry_run: bool) -> Shelf:
    """What keeps incidents; in a dry run, what notes that it would have."""
    if not dry_run:
        writer = IncidentWriter(shared.folder, request.options, shared.playbooks, note=note)
        return Shelf(writer.write, writer.write_asked, note)

    def write(snapshot: Snapshot, _records: Sequence[Record]) -> None:
        incident = snapshot.incident
        note("incident", "dry-run", incident=None if incident is None else incident.key)

    def write_asked(_sample: StackSample) -> Path:
        raise OSError(errno.EPERM, "--dry-run")

    return Shelf(write, write_asked, note)


def read_told(path: Path, host: str, clock: SystemClock) -> Told:
    """Incidents that the hook was run for before this watcher began."""
    try:
        return Told(read_journal(path), host, clock.wall_s())
    except OSError as error:
        logger.warning("journal %s: %s; the on-stall command may be run again", path, error)
        return Told()
