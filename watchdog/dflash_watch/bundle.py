"""Incident folders: everything a person needs afterwards, written before anybody touches the run.

Written under a temporary name and renamed when whole; readable by the owner only; secrets masked;
rate-limited, and the folder of all incidents is kept to a size by removing the oldest.
"""

from __future__ import annotations

import errno
import itertools
import logging
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from dflash_events.secrets import mask_text, mask_tree

from dflash_watch.capture import INCIDENT_WINDOW, CaptureWriter
from dflash_watch.frame import (
    Frame,
    Hello,
    HostFrame,
    Record,
    StackSample,
    render_record,
)
from dflash_watch.guard import Guard
from dflash_watch.journal import Note, note_nothing
from dflash_watch.model import Incident, RunOptions, Snapshot
from dflash_watch.playbooks import Playbook
from dflash_watch.private import make_folder, open_private
from dflash_watch.rates import Hourly
from dflash_watch.readers.lines import escaped, printable_lines
from dflash_watch.render.jsonl import snapshot_object
from dflash_watch.render.report import render_report
from dflash_watch.render.stacktext import render_diff, render_sample
from dflash_watch.render.tables import (
    frames_of,
    gpus_csv,
    host_frames_of,
    host_text,
    log_tail,
    processes_text,
    tracebacks_of,
)
from dflash_watch.retention import BUDGET_BYTES, prune
from dflash_watch.steps import name_folder
from dflash_watch.units import moment
from dflash_watch.window.samples import OTHER

FOLDER_BYTES = 32 << 20
"""JSON of the window, before compression; the oldest frames are left out beyond it."""
PER_HOUR = 20
FOLDER_STAMP, NO_STAMP = "%Y%m%dT%H%M%SZ", "00000000T000000Z"
"""Folders are known by this form."""
_NUMBERS = itertools.count()
logger = logging.getLogger(__name__)


class IncidentWriter:
    """Writes one folder an incident below `folder`.

    Args:
        folder: of all incidents; made when needed.
        options: what the person said about the run.
        playbooks: failure -> playbook.
        budget_bytes: size of all incidents together.
        per_hour: folders written in an hour of the watched host's time; the rest is left out.
        note: where it is noted what was written, left out and removed.
    """

    def __init__(
        self,
        folder: Path,
        options: RunOptions,
        playbooks: Mapping[str, Playbook],
        *,
        budget_bytes: int = BUDGET_BYTES,
        per_hour: int = PER_HOUR,
        note: Note = note_nothing,
    ) -> None:
        self._folder, self._options, self._playbooks = folder, options, playbooks
        self._budget_bytes, self._per_hour, self._note = budget_bytes, per_hour, note
        self._written = Hourly(per_hour)

    def write(self, snapshot: Snapshot, records: Sequence[Record]) -> Path | None:
        """The folder of the snapshot's incident, whole; None when the rate limit left it out.

        Args:
            snapshot: with an incident.
            records: of the time around it, oldest first, stack samples among them.

        Raises:
            OSError: it cannot be written; nothing is left behind.
        """
        incident = snapshot.incident
        if incident is None:
            return None
        if not self._written.take(snapshot.t):
            outcome = f"left out: {self._per_hour} in an hour"
            logger.warning("incident %s %s", incident.key, outcome)
            self._note("incident", outcome, incident=incident.key)
            return None
        make_folder(self._folder)
        path = self._put(snapshot, incident, records)
        while path is None:  # another watchdog took the name meanwhile
            path = self._put(snapshot, incident, records)
        self._note("incident", "written", incident=incident.key, path=str(path))
        prune(self._folder, self._budget_bytes, self._note)
        return path

    def write_asked(self, sample: StackSample) -> Path:
        """A sample that a person asked for, as a file of its own: it belongs to no incident.

        Raises:
            OSError: it cannot be written.
        """
        make_folder(self._folder)
        name = f"{moment(sample.t, FOLDER_STAMP, unknown=NO_STAMP)}-asked-stacks"
        path, number = self._folder / f"{name}.txt", 2
        while path.exists():
            path, number = self._folder / f"{name}-{number}.txt", number + 1
        try:
            put_text(path, f"{render_sample(sample)}\n")
        except OSError:
            path.unlink(missing_ok=True)
            raise
        prune(self._folder, self._budget_bytes, self._note)
        return path

    def _put(
        self, snapshot: Snapshot, incident: Incident, records: Sequence[Record]
    ) -> Path | None:
        """Fill the folder aside and give it its name; None when that has just been taken."""
        path = self._free_path(incident)
        made = self._folder / f".{path.name}.{os.getpid()}-{next(_NUMBERS)}.tmp"
        made.mkdir(mode=0o700)
        made.chmod(0o700)
        try:
            self._fill(made, path, snapshot, incident, records)
            made.rename(path)
        except OSError as error:
            shutil.rmtree(made, ignore_errors=True)
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                return None
            raise
        except BaseException:
            shutil.rmtree(made, ignore_errors=True)
            raise
        return path

    def _free_path(self, incident: Incident) -> Path:
        name = folder_name(incident)
        path, number = self._folder / name, 2
        while path.exists():
            path, number = self._folder / f"{name}-{number}", number + 1
        return path

    def _fill(
        self,
        made: Path,
        path: Path,
        snapshot: Snapshot,
        incident: Incident,
        records: Sequence[Record],
    ) -> None:
        guard = Guard()
        cleaned = fit([guard.admit(one) for one in records], FOLDER_BYTES)
        frames, samples = frames_of(cleaned), stacks_of(incident, cleaned)
        snapshot = msgspec.structs.replace(snapshot, next=name_folder(snapshot.next, str(path)))
        told = {**snapshot_object(snapshot), "incident": str(path)}
        put_json(made / "verdict.json", msgspec.json.encode(mask_tree(told)))
        playbook = self._playbooks.get(incident.failure)
        told_stacks = tracebacks_of(frames)
        report = render_report(snapshot, incident, samples, playbook, self._options, told_stacks)
        put_text(made / "report.md", report)
        ticks_per_s = next((one.ticks_per_s for one in cleaned if isinstance(one, Hello)), 100)
        put_stacks(made, samples, ticks_per_s)
        if told_stacks and not samples:
            put_text(made / "stacks-1.txt", render_tracebacks(told_stacks))
        put_text(made / "log-tail.txt", log_tail(frames))
        host_frames = host_frames_of(cleaned)
        looks: list[Frame | HostFrame] = [*frames, *host_frames]
        put_text(made / "gpus.csv", gpus_csv(sorted(looks, key=lambda one: one.t)))
        put_text(made / "processes.txt", processes_text(frames, ticks_per_s))
        put_text(made / "host.txt", host_text(frames, host_frames))
        window = CaptureWriter(made / INCIDENT_WINDOW, self._options, _first_t(cleaned, snapshot))
        for record in cleaned:
            window.write(record)
        window.close()


def folder_name(incident: Incident) -> str:
    """`20261129T141210Z-pipeline-deadlock`: when it began, and what it is."""
    stamp = moment(incident.opened_t, FOLDER_STAMP, unknown=NO_STAMP)
    return f"{stamp}-{re.sub(r'[^a-z0-9-]+', '-', incident.failure.lower())}"


def written_path(folder: Path, incident: Incident) -> Path | None:
    """The folder of that incident, if it is there and whole."""
    path = folder / folder_name(incident)
    return path if (path / "verdict.json").is_file() else None


def put_stacks(made: Path, samples: Sequence[StackSample], ticks_per_s: int) -> None:
    """`stacks-N.txt` and `stacks-N.json` for each sample, `stacks.diff.txt` for two or more."""
    for number, sample in enumerate(samples, 1):
        put_text(made / f"stacks-{number}.txt", f"{render_sample(sample)}\n")
        put_json(made / f"stacks-{number}.json", render_record(sample))
    readable = [sample for sample in samples if sample.threads]
    if len(readable) > 1:
        put_text(made / "stacks.diff.txt", f"{render_diff(readable, ticks_per_s)}\n")


def render_tracebacks(told: Sequence[tuple[str, str]]) -> str:
    """What the trainer's own events tell of where its workers ended."""
    parts = [f"{worker}, from its worker-failed event:\n\n{text.rstrip()}" for worker, text in told]
    return "\n\n".join(parts) + "\n"


def stacks_of(incident: Incident, records: Sequence[Record]) -> list[StackSample]:
    """The newest sample of each label and process that belongs to it.

    Those of the process it is about come first, oldest first; then those of other processes.
    """
    newest: dict[tuple[str, int], StackSample] = {}
    for record in records:
        if not isinstance(record, StackSample):
            continue
        if record.label.partition(OTHER)[0] in incident.stack_labels:
            newest[record.label, record.pid] = record
    return sorted(newest.values(), key=lambda one: (OTHER in one.label, one.t))


def fit(records: Sequence[Record], limit_bytes: int) -> list[Record]:
    """The newest records that fit; the greeting and all stack samples stay."""
    kept: list[Record] = []
    size = 0
    for record in reversed(records):
        size += len(render_record(record))
        if size <= limit_bytes or isinstance(record, StackSample) or record is records[0]:
            kept.append(record)
    return kept[::-1]


def put_text(path: Path, text: str) -> None:
    """Write text that may be shown on any terminal and holds no secret that is recognised."""
    put(path, printable_lines(mask_text(text)).encode())


def put_json(path: Path, content: bytes) -> None:
    """Write JSON, indented, that may be shown on any terminal."""
    put(path, escaped(msgspec.json.format(content).decode()).encode())


def put(path: Path, content: bytes) -> None:
    """Write a file that only the owner can read."""
    descriptor = open_private(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


def _first_t(records: Sequence[Record], snapshot: Snapshot) -> float:
    return next((t for one in records if (t := getattr(one, "t", None)) is not None), snapshot.t)
