"""Several processes, one run directory: each writes its part, whoever looks sees one run.

The first process (rank 0) owns run.json, events.jsonl and the beat page. Another one adds its
workers to that page, in slots of its own, and appends what it has to say to `ranks/rank-N.jsonl`;
rank 0 copies that into run.json (`workers`) and events.jsonl, under its own numbers. All of them
must run on one machine: the page is shared memory.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Any, Iterator

from dflash_events.beats import BeatPage, JoinedPage
from dflash_events.identity import identity_from, is_alive, read_identity
from dflash_events.manifest import read_manifest
from dflash_events.reader import EventTail
from dflash_events.schema import RunDirError
from dflash_events.ticker import set_thread_comm
from dflash_events.worker import Worker
from dflash_events.writer import RunWriter

RANKS_NAME = "ranks"
COPY_EVERY_S, LOOK_EVERY_S = 0.25, 0.1


def launch_id(parent: int | None = None) -> str:
    """The launcher all processes of one start have in common: its pid and start ticks.

    Args:
        parent: pid of the launcher; None takes this process's parent.
    """
    identity = read_identity(os.getppid() if parent is None else parent)
    return f"{identity.pid}-{identity.start_ticks}" if identity else "gone"


def rank_file(run_dir: Path, rank: int) -> Path:
    """Where a process other than the first writes its part."""
    return run_dir / RANKS_NAME / f"rank-{rank}.jsonl"


def await_run(run_dir: Path, launch: str, timeout_s: float) -> dict[str, Any]:
    """run.json of this launch, once rank 0 has written it.

    Raises:
        RunDirError: it does not appear in time.
    """
    until_s = time.monotonic() + timeout_s
    while True:
        try:
            data = read_manifest(run_dir).data
            if (data.get("launch") or {}).get("id") == launch and is_alive(
                identity_from(data["process"])
            ):
                return data
        except RunDirError:
            pass  # not there yet, or an earlier run's
        if time.monotonic() > until_s:
            raise RunDirError(
                f"{run_dir}: the first process has not written run.json for {timeout_s:.0f} s",
                hint="see what it says on standard error",
            )
        time.sleep(LOOK_EVERY_S)


class JoinedWriter(RunWriter):
    """What a process other than the first writes with; used like a `RunWriter`.

    Args:
        run_dir: the run's.
        rank: 1 or more.
        beats_path: from run.json; None when the run has no page that can be shared.
    """

    def __init__(self, run_dir: str | Path, rank: int, beats_path: str | None) -> None:
        self._rank = rank
        self._beats_path = Path(beats_path) if beats_path else None
        super().__init__(run_dir)

    def _make_page(self, shm: Path) -> BeatPage:  # noqa: ARG002 - the base class's arguments
        return JoinedPage(self._beats_path)

    def _events_file(self) -> Path:
        return rank_file(self.run_dir, self._rank)

    def start(self) -> RunWriter:
        """Begin writing. The ticker is rank 0's: a page has one."""
        self._sink.start()
        return self

    def worker(  # the same arguments as the base class
        self,
        name: str,
        role: str = "other",
        index: int | None = None,
        device: str | None = None,
        gpu_uuid: str | None = None,
    ) -> Worker:
        """As the base class; told to rank 0 for run.json."""
        handle = super().worker(name, role, index, device, gpu_uuid)
        self.event("worker", facts=self._worker_facts[name])
        return handle

    def phase(  # type: ignore[override]  # a context either way
        self,
        name: str,  # noqa: ARG002 - the base class's arguments
        *,
        budget_s: float | None = None,  # noqa: ARG002
        detail: str | None = None,  # noqa: ARG002
    ) -> AbstractContextManager[None]:
        """The run's phase is rank 0's to say."""
        return nullcontext()

    def exit(self, code: int | None, reason: str, message: str | None = None) -> None:  # noqa: ARG002 - as above
        """The run's end is rank 0's to say."""
        self._exited = True

    def _write_manifest(self) -> None:
        self._events_file().parent.mkdir(parents=True, exist_ok=True)

    def _heartbeat(self) -> bytes | None:  # type: ignore[override]  # none: beats show that it lives
        return None

    def _leave(self) -> None:
        """Nothing is kept beside the events: the page is rank 0's."""


class RankCollector:
    """Rank 0's thread that copies what the other processes have written.

    Made before the writer starts, so that nothing of an earlier launch is taken for this one's.

    Args:
        writer: of rank 0.
        size: processes of the run.
    """

    def __init__(self, writer: RunWriter, size: int) -> None:
        self._writer = writer
        files = {rank: rank_file(writer.run_dir, rank) for rank in range(1, size)}
        for file in files.values():  # an earlier start's
            with suppress(OSError):
                file.unlink()
        if files:
            writer.page.share()
        self._tails = {rank: EventTail(file) for rank, file in files.items()}
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dflash-ranks", daemon=True)

    def __enter__(self) -> RankCollector:
        if self._tails:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()

    def finish(self) -> None:
        """Copy what is still to come of processes that end now, and end."""
        if self._ending.is_set() or not self._tails:
            return
        self._ending.set()
        self._thread.join(COPY_EVERY_S * 8)

    def _run(self) -> None:
        set_thread_comm("dflash-ranks")
        while not self._ending.wait(COPY_EVERY_S):
            self._copy()
        time.sleep(COPY_EVERY_S)  # what the others say last is under way
        self._copy()
        for tail in self._tails.values():
            tail.close()

    def _copy(self) -> None:
        for rank, event in self._news():
            facts = event.get("facts")
            if event.get("kind") == "worker" and isinstance(facts, dict):
                self._writer.add_worker_facts(facts)
            else:
                self._writer.pass_on({**event, "rank": rank})

    def _news(self) -> Iterator[tuple[int, dict[str, Any]]]:
        for rank, tail in self._tails.items():
            try:
                news = tail.read().events
            except RunDirError:
                continue  # it has not begun yet
            for event in news:
                yield rank, event
