"""Where snapshots go: the dashboard's socket, JSON lines, or lines for people."""

from __future__ import annotations

import threading
from argparse import Namespace
from collections.abc import Callable, Iterable

from dflash_watch.commands.context import Context, write_line
from dflash_watch.commands.lines import LineSink
from dflash_watch.live import Live
from dflash_watch.model import Snapshot
from dflash_watch.publish import Publisher, adopt
from dflash_watch.render.jsonl import JsonLines
from dflash_watch.render.plain import PlainLines

Render = Callable[[Snapshot], Iterable[str]]


def wants_dashboard(given: Namespace, context: Context) -> bool:
    """A person looks at a terminal, and did not ask for lines."""
    asked = given.plain or given.json or given.publish_fd is not None
    return context.is_terminal and not asked


def attach_sink(
    live: Live, given: Namespace, stop: threading.Event, context: Context, *, lossless: bool
) -> Callable[[float], None]:
    """Attach the sink that was asked for; what closes it.

    Args:
        live: gets the sink.
        given: the command line.
        stop: set when nobody reads any more.
        context: whether lines may be coloured.
        lossless: a slow reader slows the loop instead of missing lines (a recording).
    """
    if given.publish_fd is not None:
        publisher = Publisher(adopt(given.publish_fd), live.order, stop.set)
        live.attach(publisher)
        return publisher.close
    render: Render = (
        JsonLines().lines if given.json else PlainLines(is_coloured=context.has_colour).lines
    )
    render = after_first_word(render)
    has_colour = context.has_colour and not given.json
    if lossless:
        live.attach(lambda snapshot: write_all(render(snapshot), has_colour=has_colour))
        return lambda _timeout_s: None
    lines = LineSink(render, stop, has_colour=has_colour)
    live.attach(lines)
    return lines.close


def after_first_word(render: Render) -> Render:
    """The same, but silent until something is known: a connection being made is no news."""

    def lines(snapshot: Snapshot) -> Iterable[str]:
        is_waiting = snapshot.data_t is None and snapshot.link.state in ("connecting", "up")
        return () if is_waiting else render(snapshot)

    return lines


def write_all(lines: Iterable[str], *, has_colour: bool) -> None:
    """All of them, however long the reader takes.

    Raises:
        OSError: the reader is gone.
    """
    for line in lines:
        write_line(line, has_colour=has_colour)
