"""The viewer's side: choose a server, come in, read its greeting."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Sequence

import msgspec
from dflash_events import __version__

from dflash_watch.errors import UsageError, WatchError
from dflash_watch.serving.folder import Served, address, opened
from dflash_watch.serving.hall import PROTOCOL, Greeting, peer_uid

ANSWER_S = 5.0
LONGEST_GREETING = 4096


def choose_server(servers: Sequence[Served], name: str | None) -> Served:
    """The server of that name, or the only one.

    Raises:
        WatchError: none is there.
        UsageError: none has that name, or several are there and none was named.
    """
    if not servers:
        raise WatchError(
            "no watcher is served here for this user",
            hint="start one: dflash-watch serve [same options as dflash-watch]",
        )
    if name is None and len(servers) == 1:
        return servers[0]
    found = [one for one in servers if one.card.name == name]
    if found:
        return found[0]
    if name is not None:
        names = ", ".join(one.card.name for one in servers)
        raise UsageError(f"no watcher '{name}' is served here", hint=f"there is: {names}")
    raise UsageError(f"{len(servers)} watchers are served here", hint="type one of these lines")


def listing(servers: Sequence[Served]) -> list[str]:
    """What to type for each, and what it watches."""
    width = max((len(one.card.name) for one in servers), default=0)
    return [f"dflash-watch attach {one.card.name:<{width}}   {one.card.what}" for one in servers]


def visit(server: Served, answer_s: float = ANSWER_S) -> socket.socket:
    """Come in; the connection after the greeting.

    Raises:
        WatchError: it does not answer, is of another version, or lets nobody in; says which.
    """
    card = server.card
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        link.settimeout(answer_s)
        with opened(server.folder) as descriptor:
            link.connect(address(descriptor, card.name))
        check(peer_uid(link), read_greeting(link, answer_s), card.name)
        link.settimeout(None)
    except TimeoutError:
        link.close()
        raise WatchError(
            f"the watcher {card.name} (pid {card.pid}) has not answered for {answer_s:g} s",
            hint=f"is it stopped? ps -o stat= -p {card.pid}",
            permanent=False,
        ) from None
    except OSError as error:
        link.close()
        raise WatchError(
            f"the watcher {card.name} (pid {card.pid}): {error.strerror or error}", permanent=False
        ) from error
    except WatchError:
        link.close()
        raise
    return link


def read_greeting(link: socket.socket, answer_s: float) -> Greeting:
    """The first line, and not a byte more.

    Raises:
        OSError: it does not come (TimeoutError), or the connection ends.
        WatchError: it is none.
    """
    line, end_s = b"", time.monotonic() + answer_s
    while not line.endswith(b"\n"):
        if time.monotonic() > end_s:
            raise TimeoutError
        byte = link.recv(1)
        if not byte or len(line) > LONGEST_GREETING:
            raise ConnectionError(104, "it hung up before its greeting")
        line += byte
    try:
        return msgspec.json.decode(line, type=Greeting)
    except (msgspec.DecodeError, RecursionError) as error:
        raise WatchError("what answers there is no dflash-watch", permanent=True) from error


def check(uid: int, greeting: Greeting, name: str) -> None:
    """Is it this user's, and do both speak the same?

    Raises:
        WatchError: no, or it lets nobody in.
    """
    if os.geteuid() not in (uid, 0):
        raise WatchError(f"the socket of {name} belongs to user {uid}, not to you")
    if greeting.protocol != PROTOCOL:
        raise WatchError(
            f"the watcher {name} is dflash-watch {greeting.version} (protocol"
            f" {greeting.protocol}), this is {__version__} (protocol {PROTOCOL})",
            hint="start it again with this version, or attach with its own",
        )
    if greeting.refused is not None:
        raise WatchError(f"the watcher {name} lets you not in: {greeting.refused}")


def reopen(server: Served) -> socket.socket | None:
    """Come in again, also to a server that took the place of this one; None while there is none."""
    with contextlib.suppress(WatchError):
        return visit(server, answer_s=1.0)
    return None
