"""The writing half: `RunWriter` makes a run visible from outside, and never gets in its way."""

from __future__ import annotations

import atexit
import os
import platform
import sys
import threading
import time
import uuid
import weakref
from pathlib import Path
from typing import Mapping, Sequence

from dflash_events import layout as at
from dflash_events.beats import SHM, BeatPage, remove_dead_pages
from dflash_events.emitter import Announcer
from dflash_events.events import encode_event
from dflash_events.figures import ending_of, training_steps, wait_shares
from dflash_events.identity import Identity, read_identity
from dflash_events.manifest import process_facts, size_of, write_manifest
from dflash_events.phases import RunPhase
from dflash_events.schema import (
    BEATS_NAME,
    EVENTS_NAME,
    LOG_NAME,
    PERIODIC_KINDS,
    ROLES,
    SCHEMA,
)
from dflash_events.secrets import mask_tree
from dflash_events.sink import Chores, Sink, set_aside
from dflash_events.ticker import Ticker, set_thread_comm
from dflash_events.worker import Worker

FLUSH_S = 2.0
"""Longest wait for the disk at the end of a run."""


class RunWriter(Announcer):
    """Writes run.json, events.jsonl and the beat page of one run.

    Nothing here raises for a disk, a directory or a mount, and nothing waits for one: trouble is
    counted in the beat page (`trouble()` says it in words). Use as a context: leaving it writes
    the `exit` event, `done` or, with an exception, `failed` or `stopped`.

    Args:
        run_dir: the directory; made if it is missing.
        name: what people call the run; None takes the directory's name.
        config: the resolved configuration; texts under secret names are masked.
        command: argument list of the run; None takes this process's own.
        total_steps: None when not known.
        log_path: what a person reads; None takes train.log in the directory.
        versions: package -> version, added to Python's own.
        sources: file -> sha256 (`manifest.source_hashes`) of what was really loaded.
        expected_tokens_per_s: what a healthy run reaches; None when not known.
        faulthandler_signal: number of the signal that dumps all stacks, if one was registered.
        faulthandler_file: where it appends them (`stack_signal`); None: to standard error.
        incidents_path: where a watchdog started by the run keeps its incidents.
        every_s: pace of heartbeats.
        shm: where the beat page lies.
        launch: what tells this start of several processes from every other, and how many they are;
            None for a run of one process.
    """

    def __init__(  # noqa: PLR0913 - the keys of run.json, each named by who calls
        self,
        run_dir: str | Path,
        name: str | None = None,
        config: Mapping[str, object] | None = None,
        command: Sequence[str] | None = None,
        *,
        total_steps: int | None = None,
        log_path: str | Path | None = None,
        versions: Mapping[str, str] | None = None,
        sources: Mapping[str, str] | None = None,
        expected_tokens_per_s: float | None = None,
        faulthandler_signal: int | None = None,
        faulthandler_file: str | Path | None = None,
        incidents_path: str | Path | None = None,
        every_s: float = 5.0,
        shm: Path = SHM,
        launch: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(self._hand_over)
        self.run_dir = Path(os.path.abspath(run_dir))  # noqa: PTH100 - resolve() asks the disk
        self.run_id = uuid.uuid4().hex
        self.identity = read_identity() or Identity(os.getpid(), 0)
        self.page = self._make_page(shm)
        self.total_steps = total_steps
        self._shm = shm
        # Re-entrant, as all locks here: a signal handler may interrupt its holder and say `exit`.
        self._lock = threading.RLock()
        self._workers: dict[str, Worker] = {}
        self._worker_facts: dict[str, dict[str, object]] = {}
        self._notes: dict[str, object] = {}
        self._step: int | None = None
        self._waits_at: tuple[int, dict[str, list[int]]] = (time.monotonic_ns(), {})
        self._exited = self._closed = False
        self._facts = {
            **process_facts(command),
            "schema": SCHEMA,
            "run_id": self.run_id,
            "name": name or self.run_dir.name,
            "process": self.identity.as_dict(),
            "versions": {"python": platform.python_version(), **(versions or {})},
            "config": mask_tree(dict(config or {})),
            "log_path": str(log_path or self.run_dir / LOG_NAME),
            "log_start_bytes": size_of(Path(log_path or self.run_dir / LOG_NAME)),
            "events_path": str(self.run_dir / EVENTS_NAME),
            "beats_path": str(self.page.path) if self.page.path else None,
            "beats_note": self.page.note,
            "incidents_path": str(incidents_path) if incidents_path else None,
            "total_steps": total_steps,
            "expected_tokens_per_s": expected_tokens_per_s,
            "faulthandler_signal": faulthandler_signal,
            "faulthandler_file": str(faulthandler_file) if faulthandler_file else None,
            "sources": dict(sources or {}),
        }
        if launch is not None:
            self._facts["launch"] = dict(launch)
        chores = Chores(self._write_manifest, self._heartbeat, self._leave)
        self._sink = Sink(self._events_file(), self.page, chores, every_s=every_s)
        self._ticker = Ticker(self.page)

    def _make_page(self, shm: Path) -> BeatPage:
        return BeatPage(self.identity, self.run_id[:8], shm)

    def _events_file(self) -> Path:
        return self.run_dir / EVENTS_NAME

    # -- life --------------------------------------------------------------------------------

    def __enter__(self) -> RunWriter:
        return self.start()

    def __exit__(self, kind: object, exception: BaseException | None, trace: object) -> None:
        self.exit(*ending_of(exception))
        self.close()

    def start(self) -> RunWriter:
        """Begin writing; waits `FLUSH_S` at most for run.json to be in place."""
        remove_dead_pages(self._shm)
        _OPEN.add(self)
        self._sink.start()
        self._ticker.start()
        self._sink.first_look.wait(FLUSH_S)
        return self

    def close(self, wait_s: float = FLUSH_S) -> bool:
        """Write what is queued and end; True when all of it was handed to the disk in time."""
        if self._closed:
            return True
        self._closed = True
        _OPEN.discard(self)
        self._ticker.stop()
        return self._sink.close(wait_s)

    def exit(self, code: int | None, reason: str, message: str | None = None) -> None:
        """The last event of the run, once; later calls change nothing.

        Args:
            code: exit status the process is going to have.
            reason: one of schema.EXIT_REASONS.
            message: one line for people.
        """
        with self._lock:
            if self._exited or self._closed:
                return
            self._exited = True
        self.event("exit", code=code, reason=reason, message=message)
        self.page.set_ended()

    def trouble(self) -> str | None:
        """What went wrong with writing so far, in one line; None if nothing did."""
        words = self.page.words
        errors, dropped = words[at.H_WRITE_ERRORS], words[at.H_DROPPED]
        if not errors and not dropped:
            return self.page.note
        last = os.strerror(words[at.H_LAST_ERRNO]) if errors else "queue full"
        return f"{self.run_dir}: {errors} failed writes, {dropped} events lost; last: {last}"

    # -- workers and phases ----------------------------------------------------------------

    def worker(
        self,
        name: str,
        role: str = "other",
        index: int | None = None,
        device: str | None = None,
        gpu_uuid: str | None = None,
    ) -> Worker:
        """Handle for the calling thread, which is this worker from now on.

        Args:
            name: unique in the run, `target-0`; a name seen before takes its slot over.
            role: one of schema.ROLES; anything else counts as `other`.
            index: number within the role.
            device: as torch names it, `cuda:3`.
            gpu_uuid: tells GPUs apart across namespaces and CUDA_VISIBLE_DEVICES.
        """
        role = role if role in ROLES else "other"
        set_thread_comm(name)
        tid = threading.get_native_id()
        with self._lock:
            handle = self._workers.get(name)
            if handle is None:
                base = None if self._closed else self.page.add_slot(name, role, device, tid)
                handle = Worker(self.page, base, self.event, name, role)
                self._workers[name] = handle
            else:
                handle.begin_again()
            self._worker_facts[name] = {
                "name": name,
                "role": role,
                "index": index,
                "device": device,
                "gpu_uuid": gpu_uuid,
                "pid": os.getpid(),
                "native_tid": tid,
            }
        if not self._closed:
            self._sink.manifest_changed()
        return handle

    def add_worker_facts(self, facts: dict[str, object]) -> None:
        """A worker of another process of this run, for run.json."""
        with self._lock:
            self._worker_facts[str(facts.get("name"))] = facts
        self._sink.manifest_changed()

    def pass_on(self, event: dict[str, object]) -> None:
        """An event of another process of this run, as it was, under our number."""
        line, _ = encode_event({**event, "seq": next(self._numbers)})
        self._hand_over(line, event.get("kind") in PERIODIC_KINDS)

    def note(self, key: str, value: object) -> None:
        """Keep one more fact in run.json, found while the run goes; replaces an earlier one.

        Args:
            key: none of those that run.json has by itself.
            value: what JSON can say.
        """
        with self._lock:
            self._notes[key] = mask_tree(value)
        if not self._closed:
            self._sink.manifest_changed()

    def phase(
        self, name: str, *, budget_s: float | None = None, detail: str | None = None
    ) -> RunPhase:
        """A context in which the whole run is in a phase; they nest."""
        return RunPhase(self.page, self.event, name, budget_s, detail)

    # -- what the base class and the writer thread call ------------------------------------

    def window_figures(self) -> dict[str, object]:
        """Length of the window since the last call, and what share of it each worker waited."""
        now = time.monotonic_ns()
        before, totals_before = self._waits_at
        totals = {name: worker.waited_ns(now) for name, worker in list(self._workers.items())}
        self._waits_at = (now, totals)
        window_ns = max(now - before, 1)
        shares = {
            name: wait_shares(waited, totals_before.get(name), window_ns)
            for name, waited in totals.items()
        }
        return {"window_s": window_ns / 1e9, "wait_shares": shares}

    def _hand_over(self, line: bytes, periodic: bool) -> None:  # noqa: FBT001 - the shape of Put
        if not self._closed:
            self._sink.put(line, periodic=periodic)

    def _write_manifest(self) -> None:
        if not self._sink.first_look.is_set():
            self.run_dir.mkdir(parents=True, exist_ok=True)
            set_aside(self.run_dir / EVENTS_NAME)
        with self._lock:
            workers = [dict(facts) for facts in self._worker_facts.values()]
            notes = dict(self._notes)
        write_manifest(self.run_dir, {**notes, **self._facts, "workers": workers})

    def _heartbeat(self) -> bytes:
        workers = list(self._workers.values())
        steps = training_steps(workers)
        states: dict[str, object] = {each.name: each.state for each in workers}
        keys: dict[str, object] = {"step": max(steps, default=None), "workers": states}
        return self.line("heartbeat", None, keys)[0]

    def _leave(self) -> None:
        """Keep the last state of the page beside run.json, then take it out of shared memory."""
        kept = self.run_dir / BEATS_NAME
        part = kept.with_name(f".{BEATS_NAME}.{self.identity.pid}")
        part.write_bytes(self.page.bytes_now())
        part.replace(kept)
        self.page.unlink()

    def _after_fork_in_child(self) -> None:
        """A child must not speak for its parent: all it says goes nowhere."""
        self._closed = self._exited = True
        self._lock = threading.RLock()
        self.page.become_private()
        for worker in self._workers.values():
            worker.detach()


# -- ends that pass by the `with` block ----------------------------------------------------------

_OPEN: weakref.WeakSet[RunWriter] = weakref.WeakSet()


def _at_exit() -> None:
    """The interpreter ends with a writer open (adapters; a `with` in a thread that is cut off)."""
    uncaught = getattr(sys, "last_value", None)
    for writer in list(_OPEN):
        if uncaught is not None:
            writer.exit(*ending_of(uncaught))
        else:
            writer.exit(None, "stopped", "the interpreter ended before the run said it was done")
        writer.close()


def _in_child() -> None:
    for writer in list(_OPEN):
        writer._after_fork_in_child()  # noqa: SLF001 - same module
    _OPEN.clear()


atexit.register(_at_exit)
os.register_at_fork(after_in_child=_in_child)
