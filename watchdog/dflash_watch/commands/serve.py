"""`dflash-watch serve`: watch without a terminal; dashboards and line viewers attach and leave."""

from __future__ import annotations

import os
import signal
import threading
from argparse import Namespace

from dflash_watch.clock import SystemClock
from dflash_watch.commands.context import STDOUT, Context, stop_on_signals, tell
from dflash_watch.commands.lines import LineSink
from dflash_watch.commands.looking import Look, open_look
from dflash_watch.commands.notices import STDERR, speak
from dflash_watch.commands.request import build_request
from dflash_watch.commands.served import named, receiving, refuse_twin
from dflash_watch.commands.sinks import after_first_word
from dflash_watch.commands.watch import build_hook, watch_on
from dflash_watch.render.jsonl import JsonLines
from dflash_watch.render.plain import PlainLines
from dflash_watch.serving.folder import Claim
from dflash_watch.serving.notify import ServiceManager

CLOSE_S = 0.3
OF_TERMINALS = (signal.SIGHUP, signal.SIGTTIN, signal.SIGTTOU)
"""A terminal that goes, or is somebody else's just now, neither ends nor stops a server."""


def run(given: Namespace, context: Context) -> int:
    """Serve until told to stop; exit codes as those of watching.

    Raises:
        UsageError: the same is served already, or an option is wrong.
        LinkError: the way to the run cannot work, as far as one can know.
    """
    request, hook = build_request(given), build_hook(given, context.environment)
    for number in OF_TERMINALS:
        signal.signal(number, signal.SIG_IGN)
    stop = stop_on_signals()
    refuse_twin(request, context)
    notices = speak()
    try:
        with named(request, context) as taken:
            name, what = taken.card.name, taken.card.what
            told = f"serving {what} (process {os.getpid()}): dflash-watch attach {name}"
            tell(f"dflash-watch: {told}")
            with open_look(request, given, hook) as look:
                return serve(look, taken, given, stop, context)
    finally:
        notices.finish(CLOSE_S)


def serve(
    look: Look, taken: Claim, given: Namespace, stop: threading.Event, context: Context
) -> int:
    """Run the loop with viewers, lines and the service manager as its sinks; the exit code."""
    manager = ServiceManager(context.environment, SystemClock())
    lines = LineSink(
        after_first_word(JsonLines().lines if given.json else PlainLines().lines),
        threading.Event(),  # nobody reads them any more: no reason to end
        descriptor=STDOUT if given.json else STDERR,
    )
    with receiving(taken, look.live.order) as hall:
        for sink in (manager, hall, lines):
            look.live.attach(sink)
        try:
            return watch_on(look, stop, until_end=given.until_end)
        finally:
            manager.stopping()
            lines.close(CLOSE_S)
