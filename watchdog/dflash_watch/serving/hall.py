"""The server's side: who comes is greeted, gets the newest snapshot each time, and may go.

Each viewer has a `Publisher` of its own, so that one that stops reading costs one waiting snapshot
and holds up nobody. A viewer can ask for stacks, for a new connection, or acknowledge an incident;
it can end nothing.
"""

from __future__ import annotations

import logging
import os
import socket
import struct
import threading
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from dflash_events import __version__

from dflash_watch.model import Record, Serving, Snapshot
from dflash_watch.publish import Publisher
from dflash_watch.serving.folder import Claim

PROTOCOL = 1
"""Raised when a viewer of before could not read a snapshot, or a server an order."""
MOST_VIEWERS = 32
ORDERS = frozenset({"stacks", "retry", "acknowledge"})
PAUSE_S = 0.5
logger = logging.getLogger(__name__)


class Greeting(Record, frozen=True, kw_only=True):
    """The first line a viewer reads."""

    protocol: int
    version: str
    name: str
    refused: str | None = None
    """Why the line ends here."""


class Hall:
    """Accepts viewers until closed; a sink of snapshots.

    Args:
        claim: the name and its listening socket; shut on closing, not released.
        on_order: called from a thread with what a viewer asks for.
    """

    def __init__(self, claim: Claim, on_order: Callable[[Mapping[str, Any]], None]) -> None:
        self._claim, self._on_order = claim, on_order
        self._lock = threading.Lock()
        self._viewers: dict[int, Publisher] = {}
        self._newest: Snapshot | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._accept, name="viewers", daemon=True)
        self._thread.start()

    @property
    def name(self) -> str:
        """As typed after `attach`."""
        return self._claim.card.name

    def __call__(self, snapshot: Snapshot) -> None:
        """Hand the newest snapshot to all; never blocks."""
        with self._lock:
            viewers = list(self._viewers.values())
            card = self._claim.card
            serving = Serving(
                name=card.name, pid=card.pid, since_t=card.since_t, viewers=len(viewers)
            )
            self._newest = snapshot = msgspec.structs.replace(snapshot, serving=serving)
        for viewer in viewers:
            viewer(snapshot)

    def close(self, timeout_s: float) -> None:
        """Nobody comes any more; those who are there get what waits, within the time together."""
        self._closing.set()
        self._claim.shut()
        with self._lock:
            viewers, self._viewers = list(self._viewers.values()), {}
        closers = [threading.Thread(target=one.close, args=(timeout_s,)) for one in viewers]
        for closer in closers:
            closer.start()
        for closer in closers:
            closer.join()

    def _accept(self) -> None:
        number = 0
        while not self._closing.is_set():
            try:
                link, _ = self._claim.door.accept()
            except OSError as error:
                if not self._closing.wait(PAUSE_S):  # out of descriptors, for one
                    logger.warning("a viewer could not be let in: %s", error.strerror)
                continue
            number += 1
            try:
                self._greet(link, number)
            except OSError:  # gone again already
                link.close()

    def _greet(self, link: socket.socket, number: int) -> None:
        with self._lock:
            refused = refusal(peer_uid(link), len(self._viewers))
        greeting = Greeting(protocol=PROTOCOL, version=__version__, name=self.name, refused=refused)
        link.send(msgspec.json.encode(greeting) + b"\n", socket.MSG_DONTWAIT)
        if refused is not None:
            link.close()
            return
        with self._lock:
            viewer = Publisher(link, self._order, lambda: self._leave(number))
            self._viewers[number] = viewer
            newest = self._newest
        if newest is not None:
            viewer(newest)

    def _leave(self, number: int) -> None:
        with self._lock:
            viewer = self._viewers.pop(number, None)
        if viewer is not None:
            viewer.close(0.0)

    def _order(self, order: Mapping[str, Any]) -> None:
        if order.get("op") in ORDERS:
            self._on_order(order)


def refusal(uid: int, there: int) -> str | None:
    """Why a viewer may not come in; None when it may."""
    if uid not in (os.geteuid(), 0):
        return f"it belongs to user {os.geteuid()}, you are {uid}"
    if there >= MOST_VIEWERS:
        return f"{there} viewers are there already"
    return None


def peer_uid(link: socket.socket) -> int:
    """Who is at the other end, as the kernel says."""
    told = link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", told)[1])
