"""The live loop: the only place where session, engine, sinks and actions meet.

Records come in, the engine advances, snapshots go out. Nothing here decides anything about the run.
A sink that blocks or fails does not stop the watching (outlet.py); neither does a lost connection.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec

from dflash_watch.actions import Actions
from dflash_watch.clock import Clock
from dflash_watch.frame import Frame, HostFrame, LinkChange, Record, StackSample, Tick
from dflash_watch.guard import Guard
from dflash_watch.model import ASKED, IncidentStage, Snapshot, StackRequest, Verdict
from dflash_watch.render.stacktext import way_of
from dflash_watch.steps import name_folder

POLL_S = 0.2
SETTLE_S, GIVE_UP_S = 5.0, 30.0
"""After a run is gone: time for the verdict to follow, and for its incident to be written."""


class Source(Protocol):
    """Where records come from: a session, or a recording."""

    def get(self, timeout_s: float) -> Record | None:
        """The next record, None when none came in time; EOFError when there will be no more."""

    def request_stacks(self, pid: int, label: str, *, native: bool = False) -> None:
        """Ask for a stack sample; it arrives as a record."""

    def retry_now(self) -> None:
        """Do not wait for the next attempt to connect."""

    def close(self) -> None:
        """Let go, within a second."""


class Brain(Protocol):
    """The engine."""

    def advance(self, record: Record) -> Snapshot:
        """What is known after this record."""


class Keeper(Protocol):
    """Where incidents are kept; writes in its own thread."""

    def see(self, record: Record) -> None:
        """Remember a record for the window of an incident."""

    def keep(self, snapshot: Snapshot) -> None:
        """Write the folder of the snapshot's incident, once."""

    def path(self, key: str) -> str | None:
        """Where the folder of that incident is, once it is whole."""

    def asked_path(self) -> str | None:
        """Where the newest sample that a person asked for is, or why it is nowhere."""

    def is_settled(self, key: str) -> bool:
        """The folder is whole, or could not be written: nothing more will come."""


Sink = Callable[[Snapshot], None]


class Live:
    """One watched run.

    Args:
        source: records.
        engine: turns records into snapshots.
        clock: this machine's.
        actions: the only way in which anything is changed.
        record: takes each record that the engine gets (a recording); must not block.
        keeper: writes incident folders; None keeps and announces nothing (a recording).
        ticks: tell the engine when a second passed in silence; a recording brings its own.
    """

    def __init__(
        self,
        source: Source,
        engine: Brain,
        clock: Clock,
        *,
        actions: Actions,
        record: Callable[[Record], None] | None = None,
        keeper: Keeper | None = None,
        ticks: bool = True,
    ) -> None:
        self._source, self._engine, self._clock = source, engine, clock
        self._actions, self._record, self._keeper = actions, record, keeper
        self._ticks = ticks
        self._guard = Guard()
        self._sinks: list[Sink] = []
        self._received_t: float | None = None
        self._heard_s = clock.monotonic_s()
        self.snapshot: Snapshot | None = None
        self.link: LinkChange | None = None
        self.frame: Frame | None = None
        self.frames = 0
        self._orders: deque[dict[str, Any]] = deque(maxlen=16)
        self.acknowledged: dict[str, float] = {}
        """Incident key -> when a person said that they know."""
        self.gone_s: float | None = None
        self._dead_t: float | None = None
        self._stacks_way: tuple[str, ...] = ()

    def attach(self, sink: Sink) -> None:
        """Hand each snapshot to this one too; it must not block."""
        self._sinks.append(sink)

    def run(self, stop: threading.Event, until: Callable[[Live], bool] | None = None) -> None:
        """Watch until `stop` is set, the source is over, or `until` says so after a record."""
        self._obey(stop)
        while not stop.is_set():
            try:
                record = self._source.get(POLL_S)
            except EOFError:
                return
            for following in self._due(record):
                self.advance(following)
                if until is not None and until(self):
                    return
            self._obey(stop)

    def advance(self, record: Record) -> Snapshot:
        """Take one record all the way to the sinks; nothing harmful in it goes any further."""
        record = self._guard.admit(record)
        if isinstance(record, Frame):
            self.frame = record
            self.frames += 1
            self._note_end(record)
            self._received_t = self._clock.wall_s()
        elif isinstance(record, LinkChange):
            self.link = record
        elif isinstance(record, StackSample):
            self._actions.arrived(record)
            self._stacks_way = way_of(record)
        if self._record is not None:
            self._record(record)
        if self._keeper is not None:
            self._keeper.see(record)
        snapshot = self._dress(self._engine.advance(record))
        self.snapshot = snapshot
        self._act(snapshot)
        for sink in self._sinks:
            sink(snapshot)
        return snapshot

    def _note_end(self, frame: Frame) -> None:
        """Since when nothing of the run runs: gone, or only zombies that nobody collects."""
        processes = frame.processes or ()
        if frame.run.state == "gone":
            self.gone_s = frame.run.gone_s or 0.0
        elif processes and all(one.state in ("Z", "X") for one in processes):
            self._dead_t = frame.t if self._dead_t is None else self._dead_t
            self.gone_s = frame.t - self._dead_t
        else:
            self._dead_t = self.gone_s = None

    def _due(self, record: Record | None) -> list[Record]:
        """The record, the answers to refused requests, or a tick when nothing came for a second."""
        now_s = self._clock.monotonic_s()
        due: list[Record] = [*self._actions.refusals(self._clock.wall_s())]
        if record is not None:
            due.insert(0, record)
        heard = [one for one in due if not isinstance(one, HostFrame)]  # none of the run's
        if self._ticks and not heard and now_s - self._heard_s >= 1.0:
            heard.append(Tick(t=self._clock.wall_s()))
            due.append(heard[-1])
        if heard:
            self._heard_s = now_s
        return due

    def _dress(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with what only this side knows: arrival time and where the folder is."""
        incident = snapshot.incident
        if incident is not None and self._keeper is not None:
            path = incident.path or self._keeper.path(incident.key)
            known_t = self.acknowledged.get(incident.key)
            incident = msgspec.structs.replace(incident, path=path, acknowledged_t=known_t)
            if path is not None and incident.failure == snapshot.failure:
                steps = name_folder(snapshot.next, path)
                snapshot = msgspec.structs.replace(snapshot, next=steps)
        asked = self._keeper.asked_path() if self._keeper is not None else None
        return msgspec.structs.replace(
            snapshot,
            received_t=self._received_t,
            incident=incident,
            stacks_path=asked,
            stacks_way=self._stacks_way,
        )

    def _act(self, snapshot: Snapshot) -> None:
        for want in snapshot.wants:
            self._actions.take_stacks(want, snapshot)
        incident = snapshot.incident
        if incident is None or not incident.ready or self._keeper is None:
            return
        self._keeper.keep(snapshot)
        if self._keeper.is_settled(incident.key):
            self._actions.announce(snapshot)

    def is_settled(self) -> bool:
        """No incident of this run waits to be written."""
        incident = self.snapshot.incident if self.snapshot else None
        if incident is None or self._keeper is None:
            return True
        return self._keeper.is_settled(incident.key)

    def order(self, order: Mapping[str, Any]) -> None:
        """Take an order of a person, from any thread.

        Args:
            order: its `op` is `stacks`, `retry`, `acknowledge` (with the incident's `key`), `quit`.
        """
        self._orders.append(dict(order))

    def _acknowledge(self, key: object) -> None:
        """A person knows of the open incident; of one that is over, or of another, nothing."""
        incident = self.snapshot.incident if self.snapshot is not None else None
        if incident is None or incident.stage is IncidentStage.RESOLVED:
            return
        if incident.key == (key or incident.key):
            self.acknowledged.setdefault(incident.key, self._clock.wall_s())

    def _obey(self, stop: threading.Event) -> None:
        while self._orders:
            order = self._orders.popleft()
            op = order.get("op")
            pid = self.snapshot.board.pid if self.snapshot is not None else None
            if op == "quit":
                stop.set()
            elif op == "retry":
                self._source.retry_now()
            elif op == "acknowledge":
                self._acknowledge(order.get("key"))
            elif op == "stacks" and pid is None:
                self._orders.append({"op": op})  # nothing seen yet: with the next record
                return
            elif op == "stacks" and pid is not None:
                self._actions.take_stacks(StackRequest(label=ASKED, pid=pid, reason="asked for"))


def is_over(live: Live) -> bool:
    """The run's processes are gone and what belongs to its end is on disk."""
    snapshot, gone_s = live.snapshot, live.gone_s
    if snapshot is None or gone_s is None:
        return False
    if snapshot.verdict is Verdict.FINISHED:
        return True
    return gone_s >= SETTLE_S and (live.is_settled() or gone_s >= GIVE_UP_S)
