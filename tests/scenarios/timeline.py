"""A run told as a story: a few facts that hold, and seconds that pass.

    run = Timeline.ours()
    run.go(30)                          # a healthy half minute
    run.stop_steps(); run.stopped()     # SIGSTOP
    run.go(20)
    assert run.last.failure == "process-stopped"

Each second gives one frame as the agent would send it. Stack samples that the engine asks for are
taken from `run.stacks` and arrive before the next frame, as in the live loop. No clock is read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from dflash_watch.engine import Engine
from dflash_watch.frame import (
    BeatPage,
    BeatWorker,
    Frame,
    Gap,
    GpuSample,
    Hello,
    HostSample,
    LinkChange,
    LogSample,
    ProcessSample,
    Record,
    RunSample,
    StackFrame,
    StackSample,
    ThreadSample,
    ThreadStack,
    Tick,
    Ticker,
)
from dflash_watch.limits import LearnedLimits
from dflash_watch.model import RunOptions, Snapshot, StackRequest
from dflash_watch.playbooks import Playbook, load_playbooks
from dflash_watch.profiles import Profile

T0 = 1_790_000_000.0
PID = 4000
CREW = ("target-0", "target-1", "drafter-0", "drafter-1")
LOG = "/runs/a/train.log"


@cache
def playbooks() -> dict[str, Playbook]:
    return load_playbooks()


@dataclass
class Worker:
    """A pipeline worker: thread, and beat slot where the run writes beats."""

    name: str
    tid: int
    there: bool = True
    state: str = "running"
    progress_t: float | None = None
    wait: str = "none"
    wait_since_t: float = 0.0
    waits_for: str | None = None
    wait_object: str | None = None
    ticks: int = 0
    works: bool = True
    leaf: str = "model.py:forward"
    """`file:function`, several of them innermost first with `;` between."""
    owns_gil: bool = False

    def slot(self, t: float, step: int) -> BeatWorker:
        waits = self.wait != "none"
        return BeatWorker(
            name=self.name,
            role=self.name.rsplit("-", 1)[0],
            device="cpu",
            tid=self.tid,
            step=step or None,
            items=step,
            progress_age_s=None if self.progress_t is None else t - self.progress_t,
            wait=self.wait,
            wait_age_s=t - self.wait_since_t if waits else None,
            waits_for=self.waits_for,
            wait_object=self.wait_object,
            state=self.state,
        )


@dataclass
class Timeline:
    """One run and the engine that watches it."""

    is_ours: bool = True
    options: RunOptions = field(default_factory=RunOptions)
    limits: LearnedLimits | None = None
    profiles: dict[str, Profile] = field(default_factory=dict)
    crew: tuple[str, ...] = CREW
    total_steps: int = 100_000

    t: float = T0
    boot_s: float = 5000.0
    steps_per_s: float = 12.0
    steps: float = 0.0
    cores: float = 1.2
    io_per_s: float = 0.0
    state: str = "S"
    process: str = "there"
    """`there`, `gone`, `zombie`, `unseen` (no process list)."""
    exit_code: int | None = None
    log_mode: str = "lines"
    """`lines`, `silent`, `bar`, `none`."""
    log_changes: dict[str, Any] = field(default_factory=dict)
    ticker_stopped_t: float | None = None
    gpus: Callable[[float], tuple[GpuSample, ...]] | None = None
    gaps: tuple[Gap, ...] = ()
    kernel: tuple[str, ...] | None = None
    oom_kills: int = 0
    machine_oom_kills: int = 0
    stacks_error: str | None = None
    depth: int | None = None
    tokens_per_s: float = 6000.0
    throughput_every: int = 5
    wchan: str | None = None
    switches: int | None = None
    """Voluntary ones, of the main thread."""
    extra_processes: tuple[ProcessSample, ...] = ()
    answers_stacks: bool = True
    log_start_bytes: int = 0
    main_leaf: str = "threading.py:join"
    main_changes: dict[str, Any] = field(default_factory=dict)
    """Of the main process's sample."""
    host: dict[str, Any] = field(default_factory=dict)
    """Of the host's sample."""
    wait_shares: dict[str, dict[str, float]] = field(default_factory=dict)
    child_leaves: dict[int, str] = field(default_factory=dict)
    """pid of an extra process -> where its only thread stands."""

    def __post_init__(self) -> None:
        self.engine = Engine(self.options, playbooks(), limits=self.limits, profiles=self.profiles)
        self.workers = {name: Worker(name, PID + 1 + i) for i, name in enumerate(self.crew)}
        self.records: list[Record] = []
        self.snapshots: list[Snapshot] = []
        self.asked: list[StackRequest] = []
        self.pid, self.start_ticks, self.run_id = PID, 77, "r1"
        self._events: list[dict[str, Any]] = []
        self._text: list[str] = []
        self._size, self._seq, self._event_seq, self._ticks = 0, 0, 0, 500
        self._bytes = 0
        self._manifest_due = True
        self._started_t = self.t
        self._second = 0
        self._gone_t = self.t

    # -- how stories begin -----------------------------------------------------------------

    @classmethod
    def ours(cls, **changes: Any) -> Timeline:
        """A run of our own trainer: run directory, events, beats."""
        made = cls(**changes)
        made.hello()
        made.event("phase", name="loading", edge="begin", budget_s=60.0)
        return made

    @classmethod
    def training(cls, seconds: float = 30, **changes: Any) -> Timeline:
        """Our own run, loaded, then healthy for so long."""
        made = cls.ours(**changes)
        made._load()
        made.begin_training()
        made.go(seconds)
        return made

    @classmethod
    def foreign(cls, seconds: float = 30, **changes: Any) -> Timeline:
        """A script that nobody prepared: a process and a log, healthy for so long."""
        made = cls(is_ours=False, **changes)
        made.hello()
        made._load()
        made.go(seconds)
        return made

    def _load(self) -> None:
        pace, self.steps_per_s = self.steps_per_s, 0.0
        self.go(3)
        self.steps_per_s = pace

    def hello(self) -> None:
        self._seq = 0
        self.feed(
            Hello(protocol=1, agent_version="0", python="3.11", hostname="h", boot_id="b",
                  agent_pid=1, uid=0)
        )  # fmt: skip

    def begin_training(self) -> None:
        self.event("phase", name="loading", edge="end")
        self.event("phase", name="training", edge="begin")

    # -- facts that hold from now on -------------------------------------------------------

    def stop_steps(self) -> None:
        self.steps_per_s = 0.0

    def freeze(self) -> None:
        """No steps, no CPU, no words; each thread sleeps."""
        self.steps_per_s, self.cores, self.log_mode = 0.0, 0.0, "silent"
        for worker in self.workers.values():
            worker.works = False

    def wait(self, name: str, reason: str, on: str | None = None, lock: str | None = None) -> None:
        worker = self.workers[name]
        worker.wait, worker.waits_for, worker.wait_object = reason, on, lock
        worker.wait_since_t, worker.works = self.t, False
        worker.leaf = {"lock": "locks.py:acquire", "peer": "reduce.py:wait"}.get(
            reason, "queue.py:get"
        )

    def event(self, kind: str, **keys: Any) -> None:
        self._event_seq += 1
        self._events.append({"v": 1, "seq": self._event_seq, "kind": kind, "t": self.t, **keys})

    def say(self, text: str) -> None:
        self._text.append(text)

    def restart(self) -> None:
        """Another run begins in the same directory."""
        self.pid, self.start_ticks, self.run_id = self.pid + 50, self.start_ticks + 900, "r2"
        self.process, self.steps, self._event_seq, self._manifest_due = "there", 0.0, 0, True
        for worker in self.workers.values():
            worker.progress_t = None

    # -- time passes -----------------------------------------------------------------------

    def go(self, seconds: float, every_s: float = 1.0) -> Snapshot:
        """Seconds pass; a frame comes every so often."""
        for _ in range(round(seconds / every_s)):
            self._pass(every_s)
            self.feed(self.frame())
        return self.last

    def unseen(self, seconds: float, *, ticks: bool = True, frozen: bool = False) -> None:
        """Seconds pass and no frame comes; `frozen`: the run stands still meanwhile."""
        for _ in range(round(seconds)):
            if frozen:
                self.t, self.boot_s = self.t + 1.0, self.boot_s + 1.0
            else:
                self._pass(1.0)
            if ticks:
                self.feed(Tick(t=self.t + 1000.0))

    def link(self, state: str, reason: str | None = None) -> Snapshot:
        self.feed(LinkChange(t=self.t + 1000.0, state=state, reason=reason))
        return self.last

    def _pass(self, seconds: float) -> None:
        before = int(self.steps)
        self.t, self.boot_s = self.t + seconds, self.boot_s + seconds
        self._second += 1
        self.steps += self.steps_per_s * seconds
        self._ticks += round(self.cores * 100 * seconds)
        self._bytes += round(self.io_per_s * seconds)
        for worker in self.workers.values():
            if worker.works and self.cores:
                worker.ticks += round(25 * seconds)
            moved = self.steps_per_s and worker.wait == "none" and worker.works
            if moved and int(self.steps) > 0:
                worker.progress_t = self.t - 0.04
        if int(self.steps) > before:
            self._report(before)

    def _report(self, before: int) -> None:
        if self.is_ours and self._second % self.throughput_every == 0:
            self.event(
                "throughput", step=int(self.steps), total_steps=self.total_steps, window_s=5.0,
                tokens_per_s=self.tokens_per_s, loss=2.0, queue_depth=self.depth or 0,
                queue_capacity=8, wait_shares=self.wait_shares,
            )  # fmt: skip
        if self.log_mode == "lines":
            for step in range(before + 1, int(self.steps) + 1):
                self.say(f"step {step}/{self.total_steps} loss 2.{step % 97:02d} 6000 tok/s\n")
        elif self.log_mode == "bar":
            step, total = int(self.steps), self.total_steps
            self.say(f"\rtrain:  {100 * step // total}%|#  | {step}/{total} [00:01<09:00, 9it/s]")

    # -- frames ----------------------------------------------------------------------------

    def frame(self) -> Frame:
        self._seq += 1
        gone, unseen = self.process == "gone", self.process == "unseen"
        events, self._events = tuple(self._events), []
        return Frame(
            seq=self._seq,
            t=self.t,
            boot_s=self.boot_s,
            run=self._run(),
            processes=None if unseen else () if gone else self._processes(),
            threads=None if gone or unseen else {str(self.pid): self._threads()},
            logs=self._logs(),
            events=events if self.is_ours else None,
            beats=self._beats() if self.is_ours else None,
            gpus=self.gpus(self.t) if self.gpus is not None else None,
            host=HostSample(
                cpus=2,
                load1=1.0,
                oom_kills=self.oom_kills,
                machine_oom_kills=self.machine_oom_kills,
                **self.host,
            ),
            kernel=self.kernel,
            gaps=self.gaps,
        )

    def _run(self) -> RunSample:
        manifest = None
        if self.is_ours and self._manifest_due:
            self._manifest_due = False
            workers = [{"name": one.name, "native_tid": one.tid} for one in self.workers.values()]
            manifest = {
                "run_id": self.run_id, "name": "a", "process": {"pid": self.pid},
                "total_steps": self.total_steps, "workers": workers,
                "log_path": LOG, "log_start_bytes": self.log_start_bytes,
            }  # fmt: skip
        gone = self.process == "gone"
        if not gone:
            self._gone_t = self.t
        return RunSample(
            state="gone" if gone else "found", how="run-dir" if self.is_ours else "pid",
            name="a" if self.is_ours else None,
            root_pid=None if self.process == "unseen" else self.pid,
            root_start_ticks=self.start_ticks, manifest=manifest,
            gone_s=self.t - self._gone_t if gone else None,
        )  # fmt: skip

    def _processes(self) -> tuple[ProcessSample, ...]:
        main = ProcessSample(**self._main())
        return (main, *self.extra_processes)

    def _main(self) -> dict[str, Any]:
        base: dict[str, Any] = {
            "pid": self.pid, "ppid": 1, "start_ticks": self.start_ticks,
            "age_s": self.t - self._started_t, "comm": "python", "cmd": "python train.py",
            "state": "Z" if self.process == "zombie" else self.state, "is_python": True,
            "cpu_ticks": self._ticks, "rchar": self._bytes, "wchar": 0, "wchan": self.wchan,
            "exit_code": self.exit_code, "voluntary_switches": self.switches,
        }  # fmt: skip
        return {**base, **self.main_changes}

    def _threads(self) -> tuple[ThreadSample, ...]:
        own = [ThreadSample(self.pid, "python", self.state, self._ticks // 8, wchan=self.wchan)]
        if self.process == "zombie":
            return tuple(own)
        own += [
            ThreadSample(one.tid, "python", self.state, one.ticks)
            for one in self.workers.values()
            if one.there
        ]
        return tuple(own)

    def _logs(self) -> tuple[LogSample, ...] | None:
        if self.log_mode == "none":
            return None
        text, self._text = "".join(self._text), []
        offset, self._size = self._size, self._size + len(text.encode())
        made: dict[str, Any] = {
            "path": LOG, "via": "fd 1", "watched_path": LOG, "inode": 9, "size_bytes": self._size,
            "mtime_age_s": 0.2 if text else 5.0, "offset": offset, "text": text,
            "newlines": text.count("\n"), "carriage_returns": text.count("\r"),
            "unbuffered": False,
        }  # fmt: skip
        made.update(self.log_changes)
        return (LogSample(**made),)

    def _beats(self) -> BeatPage:
        stopped_t = self.ticker_stopped_t
        age_s = 0.05 if stopped_t is None else self.t - stopped_t
        workers = tuple(
            one.slot(self.t, int(self.steps)) for one in self.workers.values() if one.there
        )
        ticker = Ticker(beats=1, age_s=age_s, late_s=0.0, max_late_s=0.0)
        return BeatPage(workers=workers, ticker=ticker)

    # -- the engine ------------------------------------------------------------------------

    def feed(self, record: Record) -> None:
        self.records.append(record)
        snapshot = self.engine.advance(record)
        self.snapshots.append(snapshot)
        self.asked.extend(snapshot.wants)
        if self.answers_stacks:
            for want in snapshot.wants:
                self.feed(self._stacks(want))

    def _stacks(self, want: StackRequest) -> StackSample:
        if self.stacks_error is not None:
            return StackSample(
                t=self.t + 0.3, pid=want.pid, label=want.label, tool="kernel",
                error=self.stacks_error,
            )  # fmt: skip
        if want.pid in self.child_leaves:
            alone = _stack(want.pid, "MainThread", self.child_leaves[want.pid], 0)
            return StackSample(
                t=self.t + 0.3, pid=want.pid, label=want.label, tool="py-spy", threads=(alone,)
            )
        threads = [_stack(self.pid, "MainThread", self.main_leaf, 0)]
        threads += [
            _stack(one.tid, one.name, one.leaf, one.ticks, owns_gil=one.owns_gil)
            for one in self.workers.values()
            if one.there
        ]
        return StackSample(
            t=self.t + 0.3, pid=want.pid, label=want.label, tool="py-spy", threads=tuple(threads)
        )

    # -- what came of it -------------------------------------------------------------------

    @property
    def last(self) -> Snapshot:
        return self.snapshots[-1]

    def verdicts(self) -> list[str]:
        """Verdicts in order, repeats left out; the wait for the first frame too."""
        out: list[str] = []
        for one in self.snapshots:
            if one.data_t is not None and (not out or out[-1] != one.verdict.value):
                out.append(one.verdict.value)
        return out

    def incidents(self) -> list[str]:
        """Keys of the incidents whose folder would have been written, in order."""
        shown = [one.incident for one in self.snapshots if one.incident is not None]
        return list(dict.fromkeys(one.key for one in shown if one.ready))

    def first_t(self, verdict: str) -> float:
        """When a verdict was first given."""
        return next(one.t for one in self.snapshots if one.verdict.value == verdict)

    def ready_t(self) -> float:
        """When the first incident was ready to be written."""
        return next(one.t for one in self.snapshots if one.incident and one.incident.ready)


def _stack(tid: int, name: str, leaf: str, ticks: int, *, owns_gil: bool = False) -> ThreadStack:
    places = [place.rsplit(":", 1) for place in leaf.split(";")]
    frames = (
        *(StackFrame(function, file, 10) for file, function in places),
        StackFrame("run", "t.py", 5),
    )
    return ThreadStack(
        tid=tid, name=name, frames=frames, owns_gil=owns_gil, cpu_ticks=ticks, state="S",
    )  # fmt: skip
