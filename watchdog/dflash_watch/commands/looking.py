"""Everything that a live look needs, put together and taken apart again."""

from __future__ import annotations

import contextlib
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass

from dflash_watch.actions import Actions, Hook, Journal
from dflash_watch.bundle import IncidentWriter
from dflash_watch.clock import SystemClock
from dflash_watch.commands.context import Context, incidents_dir, state_dir
from dflash_watch.commands.keeping import Shelf
from dflash_watch.commands.learned import (
    LimitsKeeper,
    limits_path,
    profiles_path,
    read_limits,
    read_profiles,
)
from dflash_watch.commands.recording import Recorder
from dflash_watch.commands.request import Request
from dflash_watch.engine import Engine
from dflash_watch.live import Live
from dflash_watch.place import TargetChoice
from dflash_watch.playbooks import load_playbooks
from dflash_watch.session import Session

CLOSE_S = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """A session with its engine, ready to run."""

    live: Live
    target: TargetChoice


@contextlib.contextmanager
def open_look(
    request: Request, given: Namespace, context: Context, hook: Hook | None
) -> Iterator[Look]:
    """Everything wired; on leaving, what still waits is written and the agent ends."""
    clock = SystemClock()
    folder = incidents_dir(given.incidents)
    playbooks = load_playbooks()
    session = Session(request.place, request.target, request.every_s, clock)
    actions = Actions(
        session,
        Journal(folder / "journal.jsonl", clock, request.place.label()),
        clock,
        hook=hook,
        environment=context.environment,
        dry_run=given.dry_run,
    )
    writer = IncidentWriter(folder, request.options, playbooks)
    shelf = Shelf(writer.write, writer.write_asked)
    limits = limits_path(state_dir(), request.place, request.target)
    profiles = profiles_path(state_dir())
    engine = Engine(
        request.options,
        playbooks,
        limits=read_limits(limits),
        profiles=read_profiles(profiles),
    )
    keeper = LimitsKeeper(limits, clock, profiles)
    recorder = Recorder(given.record, request.options, clock) if given.record else None
    live = Live(
        session,
        engine,
        clock,
        actions=actions,
        record=recorder,
        keeper=shelf,
    )
    live.attach(lambda _snapshot: keeper.note(engine.limits))
    try:
        yield Look(live=live, target=request.target)
    finally:
        actions.close()
        keeper.close(engine.limits, CLOSE_S, engine.profile)
        shelf.close(CLOSE_S)
        if recorder is not None:
            recorder.close(CLOSE_S)
        session.close()
