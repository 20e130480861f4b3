"""Incidents on their way to disk: the recent records, and a thread that writes folders."""

from __future__ import annotations

import logging
import threading
import zlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from dflash_watch.errors import WatchError
from dflash_watch.frame import (
    CaptureHeader,
    Frame,
    Hello,
    Record,
    StackSample,
    parse_record,
    render_record,
)
from dflash_watch.journal import Note, note_nothing
from dflash_watch.model import ASKED, Incident, IncidentStage, Snapshot
from dflash_watch.outlet import Outlet
from dflash_watch.retention import mark_closed, mark_open

WINDOW_RECORDS = 900
INCIDENTS_THAT_MAY_WAIT = 8
logger = logging.getLogger(__name__)
WriteIncident = Callable[[Snapshot, Sequence[Record]], Path | None]
WriteAsked = Callable[[StackSample], Path]
SMALL_THAT_MAY_WAIT = 16


class RecentRecords:
    """The newest records, packed, led by what a replay needs to make sense of them.

    That is the newest greeting of the agent and the newest frame that carried the manifest, which
    only the first frame of a connection does.
    """

    def __init__(self, capacity: int = WINDOW_RECORDS) -> None:
        self._packed: deque[bytes] = deque(maxlen=capacity)
        self._lead: dict[str, tuple[int, bytes]] = {}
        self._count = 0

    def add(self, record: Record) -> None:
        """Remember one; the oldest is forgotten when there are too many."""
        packed = zlib.compress(render_record(record), 1)
        if isinstance(record, Hello):
            self._lead["hello"] = (self._count, packed)
        elif isinstance(record, Frame) and record.run.manifest is not None:
            self._lead["manifest"] = (self._count, packed)
        self._packed.append(packed)
        self._count += 1

    def packed(self) -> list[bytes]:
        """All that is remembered, in order, as a snapshot of this moment."""
        oldest = self._count - len(self._packed)
        lead = sorted(entry for entry in self._lead.values() if entry[0] < oldest)
        return [packed for _, packed in lead] + list(self._packed)


def unpack(packed: Sequence[bytes]) -> list[Record]:
    """The records again."""
    records = (parse_record(zlib.decompress(one)) for one in packed)
    return [record for record in records if not isinstance(record, CaptureHeader)]


class Shelf:
    """Writes each incident's folder once, and stacks a person asked for, beside the watching.

    Args:
        write: makes the folder; None when it decided not to (rate limit, size budget).
        write_asked: makes the file of a sample that a person asked for.
        note: where it is noted what could not be kept.
    """

    def __init__(
        self, write: WriteIncident, write_asked: WriteAsked, note: Note = note_nothing
    ) -> None:
        self._write_folder, self._write_file, self._note = write, write_asked, note
        self._recent = RecentRecords()
        self._lock = threading.Lock()
        self._asked: set[str] = set()
        self._settled: dict[str, str | None] = {}
        self._asked_path: str | None = None
        self._marked: str | None = None
        self._refused: str | None = None
        self._small: Outlet[Callable[[], None]] = Outlet(
            "small files", lambda write: write(), capacity=SMALL_THAT_MAY_WAIT
        )
        self._outlet: Outlet[tuple[Snapshot, list[bytes]]] = Outlet(
            "incidents", self._write, capacity=INCIDENTS_THAT_MAY_WAIT
        )

    def see(self, record: Record) -> None:
        """Remember a record for the window of an incident."""
        self._recent.add(record)
        if isinstance(record, StackSample) and record.label == ASKED:
            self._small.put(lambda: self._write_asked(record))

    def asked_path(self) -> str | None:
        """Where the newest sample that a person asked for is, or why it is nowhere."""
        with self._lock:
            return self._asked_path

    def keep(self, snapshot: Snapshot) -> None:
        """Write the folder of the snapshot's incident, once."""
        incident = snapshot.incident
        if incident is None:
            return
        self._mark(incident)
        if incident.key in self._asked:
            return
        self._asked.add(incident.key)
        self._outlet.put((snapshot, self._recent.packed()))

    def _mark(self, incident: Incident) -> None:
        """While it is open nobody shall remove its folder, whoever else watches."""
        is_open = incident.stage is not IncidentStage.RESOLVED
        path = self.path(incident.key) if is_open else None
        if path == self._marked:
            return
        before, self._marked = self._marked, path
        if before is not None:
            self._small.put(lambda: mark_closed(Path(before)))
        if path is not None:
            self._small.put(lambda: mark_open(Path(path)))

    def settle(self, paths: Mapping[str, str | None]) -> None:
        """These incidents were dealt with by an earlier watcher."""
        with self._lock:
            self._asked |= set(paths)
            self._settled |= paths

    def paths(self) -> dict[str, str | None]:
        """Incident key -> its folder, of all that were dealt with."""
        with self._lock:
            return dict(self._settled)

    def path(self, key: str) -> str | None:
        """Where the folder of that incident is, once it is whole."""
        with self._lock:
            return self._settled.get(key)

    def is_settled(self, key: str) -> bool:
        """The folder is whole, or could not be written: nothing more will come."""
        with self._lock:
            return key in self._settled

    def close(self, timeout_s: float) -> None:
        """Finish the folder that is being written, within the time given."""
        if self._marked is not None:
            marked = Path(self._marked)
            self._small.put(lambda: mark_closed(marked))
        self._small.close(timeout_s)
        self._outlet.close(timeout_s)

    def _write_asked(self, sample: StackSample) -> None:
        try:
            told = str(self._write_file(sample))
        except OSError as error:
            told = f"not kept: {error.strerror}"
            logger.warning("stacks that were asked for are %s", told)
        with self._lock:
            self._asked_path = told

    def _write(self, asked: tuple[Snapshot, list[bytes]]) -> None:
        snapshot, packed = asked
        key = snapshot.incident.key if snapshot.incident is not None else ""
        path = None
        try:
            path = self._write_folder(snapshot, unpack(packed))
            if path is not None:
                logger.info("incident kept: %s", path)
                self._refused = None
        except (OSError, WatchError) as error:
            self._complain(key, getattr(error, "strerror", None) or str(error))
        with self._lock:
            self._settled[key] = None if path is None else str(path)

    def _complain(self, key: str, why: str) -> None:
        """Once for as long as it lasts: a full disk is no news with each incident."""
        self._note("incident", f"not kept: {why}", incident=key)
        if why != self._refused:
            logger.warning("incident %s not kept: %s; watching goes on", key, why)
        self._refused = why
