"""`dflash-watch`: watch a run until told to stop; dashboard on a terminal, lines otherwise."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import socket
import threading
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence

from dflash_watch.commands.attach import show
from dflash_watch.commands.context import Context, stop_on_signals, tell
from dflash_watch.commands.glance import refuse_several
from dflash_watch.commands.looking import Look, open_look
from dflash_watch.commands.notices import speak
from dflash_watch.commands.request import Request, build_request
from dflash_watch.commands.served import find_served, named, receiving
from dflash_watch.commands.sinks import attach_sink, wants_dashboard
from dflash_watch.commands.values import parse_command, parse_number
from dflash_watch.errors import (
    EXIT_CRITICAL,
    EXIT_OK,
    EXIT_UNKNOWN,
    LinkError,
    UsageError,
    WatchError,
)
from dflash_watch.frame import Frame
from dflash_watch.hook import Hook
from dflash_watch.live import Live, is_over
from dflash_watch.model import Verdict
from dflash_watch.place import TargetChoice
from dflash_watch.serving.folder import Claim, Served
from dflash_watch.serving.visit import visit

logger = logging.getLogger(__name__)
END_CODES = {Verdict.FINISHED: EXIT_OK, Verdict.CRASHED: EXIT_CRITICAL}


def run(given: Namespace, context: Context) -> int:
    """Watch; 0 when asked to stop, else as the run ended (`--until-end`).

    Raises:
        LinkError: the way to the run cannot work, as far as one can know.
    """
    request, hook = build_request(given), build_hook(given, context.environment)
    if wants_dashboard(given, context):
        served = find_served(request, context) if is_plain_look(given) else None
        if served is not None and (link := visit_or_say(served)) is not None:
            return show(served, link, context)
        return context.show(context.words)
    notices, stop = speak(), stop_on_signals()
    try:
        with contextlib.ExitStack() as opened:
            taken = opened.enter_context(perhaps_named(request, given, context))
            look = opened.enter_context(open_look(request, given, hook))
            if taken is not None:
                look.live.attach(opened.enter_context(receiving(taken, look.live.order)))
            return watch(look, given, stop, context)
    finally:
        notices.finish(0.2)


def visit_or_say(served: Served) -> socket.socket | None:
    """Come in; a server that hangs or is of another version is said, and looked past."""
    try:
        return visit(served)
    except WatchError as error:
        tell(f"dflash-watch: {error}")
        return None


@contextlib.contextmanager
def perhaps_named(request: Request, given: Namespace, context: Context) -> Iterator[Claim | None]:
    """A name for viewers where that was asked for and can be had; None otherwise."""
    with contextlib.ExitStack() as opened:
        taken = None
        if given.attachable:
            try:
                taken = opened.enter_context(named(request, context))
            except WatchError as error:
                logger.warning("no dashboard can attach: %s", error)
        yield taken


def is_plain_look(given: Namespace) -> bool:
    """Nothing was asked for that a server which is there already does not do."""
    asked = (given.record, given.incidents, given.on_stall, given.dry_run, given.until_end)
    return not (any(asked) or given.no_host_agent or given.every_s != "1")


def watch(look: Look, given: Namespace, stop: threading.Event, context: Context) -> int:
    """Run the loop with the sink that was asked for; the exit code."""
    close_sink = attach_sink(look.live, given, stop, context, lossless=False)
    try:
        return watch_on(look, stop, until_end=given.until_end)
    finally:
        close_sink(0.3)


def watch_on(look: Look, stop: threading.Event, *, until_end: bool) -> int:
    """Run the loop with the sinks that are attached; the exit code.

    Raises:
        LinkError: the way to the run cannot work, as far as one can know.
    """
    live = look.live
    live.run(stop, ending(look.target, until_end=until_end))
    if not stop.is_set():
        look.actions.finish()
    if is_refused(live) and live.link is not None:
        raise LinkError(live.link.reason or "the way to the run cannot work")
    if stop.is_set() or live.snapshot is None:
        return EXIT_OK
    return END_CODES.get(live.snapshot.verdict, EXIT_UNKNOWN)


def ending(target: TargetChoice, *, until_end: bool) -> Callable[[Live], bool]:
    """When the loop ends by itself: nothing to be had, or the run is over."""

    def ends(live: Live) -> bool:
        if live.frames == 1:
            refuse_absent_pid(target, live.frame)
        return is_refused(live) or (until_end and is_over(live))

    return ends


def refuse_absent_pid(target: TargetChoice, frame: Frame | None) -> None:
    """Nothing when the process asked for is there; other runs may still begin and are waited for.

    Raises:
        UsageError: several programs run below it: one of them is meant.
        WatchError: no such process, or it is no Python and has none below it.
    """
    refuse_several(target, frame)
    if target.pid is not None and frame is not None and frame.run.state == "none":
        note = frame.run.note or f"no process {target.pid}"
        raise WatchError(note, hint="name the run with --run-dir, --match or --log")


def is_refused(live: Live) -> bool:
    """Never connected, and no further attempt will be made."""
    return live.link is not None and live.link.state == "closed" and live.frames == 0


def script_of(argv: Sequence[str]) -> str | None:
    """The file that an interpreter is told to run: `notify.sh` of `sh notify.sh`."""
    program = argv[0].rpartition("/")[2]
    if len(argv) < 2 or not re.fullmatch(r"(ba|da|z|k)?sh|python[\d.]*|perl", program):
        return None
    return None if argv[1].startswith("-") else argv[1]


def build_hook(given: Namespace, environment: Mapping[str, str]) -> Hook | None:
    """The command of `--on-stall`.

    Raises:
        UsageError: its program is not there: better said now than in the night it is for.
    """
    limit_s = parse_number("--on-stall-limit-s", given.on_stall_limit_s, 1, 3600)
    if given.on_stall is None:
        return None
    argv = parse_command("--on-stall", given.on_stall)
    if shutil.which(argv[0]) is None:
        hint = "is it on PATH, and executable? for a shell line write \"sh -c '...'\""
        raise UsageError(f"--on-stall: no program {argv[0]} on this machine", hint=hint)
    script = script_of(argv)
    if script is not None and not os.path.isfile(script):  # noqa: PTH113 - no pathlib needed here
        hint = f"write its whole path; it was looked for in {os.getcwd()}"  # noqa: PTH109
        raise UsageError(f"--on-stall: no file {script} for {argv[0]}", hint=hint)
    return Hook(argv=argv, limit_s=limit_s, environment=environment)
