"""The name and the door of a watcher that others may attach to, and finding one that is there."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from dflash_watch.clock import SystemClock
from dflash_watch.commands.context import Context, state_dir
from dflash_watch.commands.learned import watch_key
from dflash_watch.commands.request import Request
from dflash_watch.errors import UsageError, WatchError
from dflash_watch.serving.folder import (
    Card,
    Claim,
    Served,
    claim,
    find_servers,
    served_name,
    server_folders,
    viewer_folders,
)
from dflash_watch.serving.hall import Hall

CLOSE_S = 0.3
MOST_NAMESAKES = 50


@contextlib.contextmanager
def named(request: Request, context: Context) -> Iterator[Claim]:
    """A name and a socket of our own while this lasts.

    Raises:
        WatchError: no folder for the socket can be used; says which were tried.
    """
    taken = take_name(request, context)
    try:
        yield taken
    finally:
        taken.release()


@contextlib.contextmanager
def receiving(taken: Claim, on_order: Callable[[Mapping[str, Any]], None]) -> Iterator[Hall]:
    """Viewers come in while this lasts."""
    hall = Hall(taken, on_order)
    try:
        yield hall
    finally:
        hall.close(CLOSE_S)


def refuse_twin(request: Request, context: Context) -> None:
    """One server is enough for one run.

    Raises:
        UsageError: a living server watches the same.
    """
    twin = find_served(request, context)
    if twin is not None:
        name, pid = twin.card.name, twin.card.pid
        raise UsageError(
            f"{twin.card.what} is served already, as {name} (process {pid})",
            hint=f"look: dflash-watch attach {name}; or end that one first: kill {pid}",
        )


def take_name(request: Request, context: Context) -> Claim:
    """The name that the request has, or the next that is free, in the first folder that will do.

    Raises:
        WatchError: no folder will.
    """
    card = Card(
        name=served_name(request.place, request.target, request.options.name),
        pid=os.getpid(), key=watch_key(request.place, request.target), what=request.what(),
        since_t=SystemClock().wall_s(), host=socket.gethostname(),
    )  # fmt: skip
    refused = []
    for folder in server_folders(context.environment, state_dir()):
        try:
            if (taken := claim_free(folder, card)) is not None:
                return taken
        except OSError as error:
            refused.append(f"{folder}: {error.strerror or error}")
    hint = "set XDG_RUNTIME_DIR to a folder of yours"
    raise WatchError(f"no folder for the socket: {'; '.join(refused)}", hint=hint)


def claim_free(folder: Path, card: Card) -> Claim | None:
    """The card's name there, or the first of `name-2`, `name-3`, ... that nobody has."""
    for number in range(1, MOST_NAMESAKES):
        name = card.name if number == 1 else f"{card.name}-{number}"
        taken = claim(folder, msgspec.structs.replace(card, name=name))
        if taken is not None:
            return taken
    return None


def find_served(request: Request, context: Context) -> Served | None:
    """The living server of that place and run, of this user."""
    key = watch_key(request.place, request.target)
    servers = find_servers(viewer_folders(context.environment, state_dir()))
    return next((one for one in servers if one.card.key == key), None)
