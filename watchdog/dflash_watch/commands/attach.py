"""`dflash-watch attach`: look at what a server watches, on the dashboard or as lines, and leave."""

from __future__ import annotations

import socket
import threading
from argparse import Namespace
from collections.abc import Iterator
from functools import partial

import msgspec

from dflash_watch.commands.context import (
    STDOUT,
    Context,
    state_dir,
    stop_on_signals,
    tell,
)
from dflash_watch.commands.lines import is_unread
from dflash_watch.commands.sinks import (
    Render,
    after_first_word,
    wants_dashboard,
    write_all,
)
from dflash_watch.errors import EXIT_OK, LinkError
from dflash_watch.model import Snapshot
from dflash_watch.render.jsonl import JsonLines
from dflash_watch.render.plain import PlainLines
from dflash_watch.serving.folder import Served, find_servers, viewer_folders
from dflash_watch.serving.visit import choose_server, listing, reopen, visit

POLL_S = 0.2
LONGEST_LINE = 64 << 20


def run(given: Namespace, context: Context) -> int:
    """Attach; 0 when left.

    Raises:
        WatchError: nothing is served, or it does not answer.
        UsageError: several are served and none was named, or none has that name.
    """
    folders = viewer_folders(context.environment, state_dir())
    servers = find_servers(folders)
    if given.server is None and len(servers) > 1:
        for line in listing(servers):
            tell(line)
    server = choose_server(servers, given.server)
    if wants_dashboard(given, context):
        return show(server, visit(server), context)
    stop = stop_on_signals()
    with visit(server) as link:
        render: Render = (
            JsonLines().lines if given.json else PlainLines(is_coloured=context.has_colour).lines
        )
        has_colour = context.has_colour and not given.json
        render = after_first_word(render)
        for snapshot in snapshots(link, server.card.name, stop):
            write_all(render(snapshot), has_colour=has_colour)
    return EXIT_OK


def show(server: Served, link: socket.socket, context: Context) -> int:
    """The dashboard, until somebody leaves it; what was watched goes on being watched."""
    code = context.show_served(link, partial(reopen, server))
    if code == EXIT_OK:
        name = server.card.name
        lives = any(one.card.name == name for one in find_servers([server.folder]))
        told = f"goes on watching; come back: dflash-watch attach {name}" if lives else "has ended"
        tell(f"{name} {told}")
    return code


def snapshots(link: socket.socket, name: str, stop: threading.Event) -> Iterator[Snapshot]:
    """What the server sends, until `stop` is set or nobody reads our own output.

    Raises:
        LinkError: the server has ended, or sends what cannot be read here.
    """
    decoder, pending = msgspec.json.Decoder(Snapshot), bytearray()
    link.settimeout(POLL_S)
    while not stop.is_set() and not is_unread(STDOUT):
        try:
            chunk = link.recv(1 << 18)
        except TimeoutError:
            continue
        except OSError as error:
            raise LinkError(f"the watcher {name}: {error.strerror}") from error
        if not chunk:
            raise LinkError(f"the watcher {name} has ended", hint="nothing is known since")
        pending += chunk
        *lines, rest = pending.split(b"\n")
        pending = bytearray(rest)
        if len(pending) > LONGEST_LINE:
            raise LinkError(f"the watcher {name} sends no line end")
        try:
            yield from map(decoder.decode, lines)
        except (msgspec.DecodeError, RecursionError) as error:
            raise LinkError(f"the watcher {name} sends what cannot be read: {error}") from error
