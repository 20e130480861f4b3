"""The bounded past of one run: everything later stages may look at.

Derived series, not frames: a hundred threads and eight GPUs stay within a few megabytes however
long a run lasts. Runs nothing, decides nothing; the newest frame is kept whole.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from dflash_watch.frame import (
    CodeSample,
    Frame,
    Gap,
    Hello,
    HostFrame,
    HostSample,
    LinkChange,
    Record,
    StackSample,
    Tick,
)
from dflash_watch.readers.facts import Signature, SignatureSeen, StepSeen
from dflash_watch.readers.signatures import Matcher
from dflash_watch.window.crew import leaders
from dflash_watch.window.gpus import Gpus
from dflash_watch.window.held import HeldBack
from dflash_watch.window.hostside import HostSide
from dflash_watch.window.intake import clean_manifest
from dflash_watch.window.kernellog import KernelLog
from dflash_watch.window.kills import Kills
from dflash_watch.window.logs import FeedFactory, Logs
from dflash_watch.window.memory import Memory
from dflash_watch.window.numerics import Numerics
from dflash_watch.window.past import Past
from dflash_watch.window.rooms import Rooms
from dflash_watch.window.samples import Samples
from dflash_watch.window.sight import Sight
from dflash_watch.window.steady import SteadyClock
from dflash_watch.window.told import Event, Told
from dflash_watch.window.tracks import ProcessTrack, Tracks

CORES_OVER_S = 3.0
AHEAD_S = 60.0
"""By so much at most a look of the host moves the clock beyond the newest frame."""
USERS_WITHIN_S = 15.0
"""The driver tells within so long which processes use which card."""
Identity = tuple[int | None, int | None, str | None]


class Window:
    """The past of one run, advanced by each record."""

    def __init__(self, new_feed: FeedFactory, signatures: Sequence[Signature] = ()) -> None:
        self._new_feed = new_feed
        self._matcher = Matcher(signatures)
        self.sight = Sight()
        self.clock = SteadyClock()
        self.hostside = HostSide()
        self.hello: Hello | None = None
        self.frame: Frame | None = None
        """Newest frame."""
        self.now_t = 0.0
        """The watched host's clock, as well as it is known."""
        self.restarts = 0
        """How often another run took the place of this one."""
        self._reset()

    def _reset(self) -> None:
        self.tracks = Tracks()
        self.logs = Logs(self._new_feed)
        self.told = Told()
        self.gpus = Gpus()
        self.memory = Memory()
        self.past = Past()
        self.numerics = Numerics()
        self.samples = Samples()
        self.fresh_events: list[Event] = []
        """Events of the newest record only."""
        self.identity: Identity = (None, None, None)
        self.first_t: float | None = None
        self.gaps: dict[str, Gap] = {}
        self.gap_since_t: dict[str, float] = {}
        self.answered: set[str] = set()
        """Sources that have answered at least once."""
        self.code: CodeSample | None = None
        """Newest check of the source files."""
        self.code_t = 0.0
        self.kernel_log = KernelLog(self._matcher)
        self.kills, self.held = Kills(), HeldBack()
        self.rooms = Rooms()

    def take(self, record: Record) -> bool:
        """Take one record; False when it was seen already and changes nothing."""
        self.fresh_events = []
        self.logs.fresh = []
        if isinstance(record, Hello):
            if self.hello is not None and self.hello.boot_id != record.boot_id:
                self._reset()
                self.clock, self.hostside = SteadyClock(), HostSide()
            self.hello, self._seq = record, -1
        elif isinstance(record, Frame):
            return self._take_frame(record)
        elif isinstance(record, HostFrame):
            return self._take_host(record)
        elif isinstance(record, StackSample):
            record = self.clock.steady(record)
            self.samples.take(record)
            self.now_t = max(self.now_t, record.t)
        else:
            self._take_word(record)
        return True

    _seq = -1

    def _take_word(self, record: LinkChange | Tick) -> None:
        data_t = self.frame.t if self.frame is not None else None
        self.sight.take_word(record, data_t)
        self.now_t = record.t if data_t is None else max(data_t + self.sight.silent_s, self.now_t)

    def _take_frame(self, frame: Frame) -> bool:
        if frame.seq <= self._seq:
            return False
        self._seq = frame.seq
        self.clock.see(frame)
        self.hostside.see_life(frame)
        frame = self.hostside.merged(self.clock.steady(frame))
        self.sight.take_frame(frame)
        self._take_run(frame)
        self.frame, self.now_t = frame, frame.t
        if self.first_t is None:
            self.first_t = frame.t
        self.tracks.take(frame)
        self.fresh_events = self.told.take_events(frame.events, frame.t, self.clock.ahead_s)
        self._search_failures()
        self.told.take_beats(frame.beats, frame.t)
        self.logs.take(frame.logs, frame.t, self.manifest)
        if self.told.newest is None:
            for fact in self.logs.fresh:
                if isinstance(fact, StepSeen) and fact.tokens_per_s is not None:
                    self.told.throughput.take(fact.t, fact.tokens_per_s)
        self.gpus.take(frame.gpus, frame.t)
        self.memory.take(frame)
        cores = self.tracks.cpu_ratio(frame.boot_s - CORES_OVER_S, self.ticks_per_s)
        self.past.take(frame, cores, self.fresh_events, self.gpus.used(self.tracks.pids()))
        self.numerics.take_events(self.fresh_events)
        self.numerics.take_facts(self.logs.fresh)
        self.kills.take(frame.t, frame.host, is_gone=self.is_gone())
        self.rooms.take(frame.t, frame.host)
        self.held.take_frame(frame.boot_s, frame.host)
        if frame.code is not None:
            self.code, self.code_t = frame.code, frame.t
        self._take_gaps(frame)
        self._take_kernel(frame)
        return True

    def _take_host(self, record: HostFrame) -> bool:
        """Take what the host of the container says; False when that changes nothing."""
        is_news, lines = self.hostside.take(record)
        t = self._on_frames_clock(record.boot_s)
        if record.container is not None:
            self.kills.take_container(t, record.container.oom_kills)
            self.held.take_container(record.boot_s, record.container)
        told = [line.text for line in lines if line.about in {"container", "machine"}]
        self.kernel_log.note(told, t, record.boot_s)
        if self.frame is not None and t - self.data_t < AHEAD_S:
            self.now_t = max(self.now_t, t)
        return is_news

    def _on_frames_clock(self, boot_s: float) -> float:
        """The moment on the scale of the frames; the newest one's before there is any."""
        return self.frame.t + boot_s - self.frame.boot_s if self.frame is not None else self.now_t

    def frozen_t(self) -> float | None:
        """Since when the host says that nothing in the container runs."""
        boot_s = self.hostside.frozen_boot_s
        return None if boot_s is None else max(self._on_frames_clock(boot_s), self.data_t)

    def thawed_t(self) -> float | None:
        """Since when it may run again, by the host's word; frames have not come yet."""
        boot_s = self.hostside.thawed_boot_s
        return None if boot_s is None else self._on_frames_clock(boot_s)

    def _take_kernel(self, frame: Frame) -> None:
        """Search kernel lines and events once it can be known whose cards they are about."""
        self.kernel_log.take(frame)
        waited_s = frame.t - (self.first_t or frame.t)
        if self.gpus.tells_users or "gpu" in self.gaps or waited_s > USERS_WITHIN_S:
            main = self.main()
            age_s = main.sample.age_s if main is not None else None
            begun_t = None if age_s is None else self.now_t - age_s
            found = self.kernel_log.search(self.gpus, self.tracks.pids(), begun_t)
            self.logs.signatures.extend(found)

    def _search_failures(self) -> None:
        """Signatures in the tracebacks of workers that failed."""
        for event in self.fresh_events:
            if event.get("kind") != "worker-failed":
                continue
            text = f"{event.get('traceback')}\n{event.get('exception')}: {event.get('message')}"
            for match in self._matcher.in_text(text):
                fact = SignatureSeen(
                    t=float(event.get("t") or 0.0), path="events.jsonl", text=match.text,
                    failure=match.signature.failure, subject=str(event.get("worker")),
                    meaning=match.signature.meaning, grave=match.signature.grave,
                )  # fmt: skip
                self.logs.signatures.append(fact)

    def _take_run(self, frame: Frame) -> None:
        run = frame.run
        manifest = clean_manifest(run.manifest) if run.manifest is not None else None
        run_id = manifest.get("run_id") if manifest is not None else None
        now: Identity = (run.root_pid, run.root_start_ticks, run_id)
        known = self.identity
        changed = any(
            new is not None and old is not None and new != old
            for new, old in zip(now, known, strict=True)
        )
        if changed:
            self._reset()
            self.restarts += 1
            known = self.identity
        merged = [new if new is not None else old for new, old in zip(now, known, strict=True)]
        self.identity = (merged[0], merged[1], merged[2])  # type: ignore[assignment]
        if manifest is not None:
            self.told.manifest = manifest

    def _take_gaps(self, frame: Frame) -> None:
        gaps = {gap.source: gap for gap in frame.gaps}
        for source, gap in gaps.items():
            if source not in self.gaps:
                self.gap_since_t[source] = frame.t - (gap.since_s or 0.0)
        self.gaps = gaps
        parts = {
            "process": frame.processes, "threads": frame.threads, "log": frame.logs,
            "events": frame.events, "beats": frame.beats, "gpu": frame.gpus, "host": frame.host,
            "kernel": frame.kernel,
        }  # fmt: skip
        self.answered |= {source for source, part in parts.items() if part and source not in gaps}

    # -- what everybody asks ---------------------------------------------------------------

    @property
    def data_t(self) -> float:
        """Moment of the newest frame: silence counts up to there, not through a blind time."""
        return self.frame.t if self.frame is not None else self.now_t

    @property
    def host(self) -> HostSample | None:
        """The machine around the run, as the newest frame has it."""
        return self.frame.host if self.frame is not None else None

    @property
    def ticks_per_s(self) -> int:
        """Unit of CPU ticks over there."""
        return self.hello.ticks_per_s if self.hello is not None else 100

    @property
    def manifest(self) -> Mapping[str, Any]:
        """run.json; empty for a run that writes none."""
        return self.told.manifest or {}

    @property
    def is_ours(self) -> bool:
        """Does the run say about itself what docs/run-directory.md promises?"""
        return self.told.manifest is not None

    @property
    def tells_steps(self) -> bool:
        """Does the run count its steps in events or beats? Then numbers in its log are no steps."""
        return self.is_ours and bool(self.answered & {"events", "beats"})

    def main_pid(self) -> int | None:
        """The process that trains: by its own word, rank 0 below a launcher, the root, a Python."""
        told = (self.manifest.get("process") or {}).get("pid")
        if isinstance(told, int):
            return told
        run = self.frame.run if self.frame is not None else None
        root = run.root_pid if run is not None else None
        process = self.tracks.process(root)
        if process is not None and process.sample.rank is None:
            first = leaders(self.tracks, also_dead=True).get(0)
            if first is not None:
                return first.sample.pid
        pythons = [one for one in self.tracks.processes.values() if one.sample.is_python]
        if pythons and process is not None and not process.sample.is_python:
            return max(pythons, key=lambda one: one.sample.cpu_ticks or 0).sample.pid
        return root

    def main(self) -> ProcessTrack | None:
        """Track of the main process while it is there."""
        return self.tracks.process(self.main_pid())

    def is_gone(self) -> bool:
        """The main process was there and is not any more."""
        if self.frame is None:
            return False
        if self.frame.run.state == "gone":
            return True
        pid = self.main_pid()
        was_there = any(one.sample.pid == pid for one in self.tracks.gone_processes)
        return was_there and self.tracks.process(pid) is None

    def gone_t(self) -> float | None:
        """Since when the main process is not there."""
        if self.frame is None or not self.is_gone():
            return None
        if self.frame.run.gone_s is not None:
            return self.frame.t - self.frame.run.gone_s
        pid = self.main_pid()
        seen = [one.track.gone_t for one in self.tracks.gone_processes if one.sample.pid == pid]
        return next((moment for moment in reversed(seen) if moment is not None), self.frame.t)

    def kernel_words(self, pattern: re.Pattern[str]) -> list[str]:
        """What the kernel has said lately of the run or the machine, last first."""
        boot_s = self.frame.boot_s if self.frame is not None else 0.0
        return self.kernel_log.quote(pattern, boot_s, self.tracks.pids(), self.hostside.lines())

    def thread_name(self, pid: int, tid: int) -> str | None:
        """Name of a thread: its worker's, Python's own, or the kernel's when it tells anything."""
        for worker in self.told.workers.values():
            if worker.tid == tid:
                return worker.name
        for worker in self.manifest.get("workers") or ():
            if worker.get("native_tid") == tid:
                return str(worker.get("name"))
        return self.samples.names.get((pid, tid))
