"""A worker of the pipeline ended in an error, or is not there any more while it is needed.

Sees:       `worker-failed` events, beat slots that failed, exceptions in the log that name a
            worker, and threads or worker processes that worked and vanished before progress ended.
Means:      the others wait for it, or limp on without it.
Wrong when: a thread ends as it should just before something else stops the run.
Source:     docs/run-directory.md, "worker-failed"; docs/verdicts.md, "vanished threads".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dflash_watch.detectors.base import Answer, Detector, Example, View, symptom
from dflash_watch.detectors.examples import T0, example, frames
from dflash_watch.frame import ProcessSample, StackFrame, ThreadStack
from dflash_watch.model import Severity, Source
from dflash_watch.readers.facts import TracebackSeen
from dflash_watch.readers.waits import is_helper
from dflash_watch.units import duration
from dflash_watch.window.tracks import ZOMBIE, ProcessTrack

TOGETHER_S = 3.0
LOADER_WORKER = "pt_data_worker"
"""As torch names the workers of its data loader; `loader-worker-gone` looks after them."""
BY_HAND = frozenset({"KeyboardInterrupt"})
"""What a person does to a run is no failure of a worker."""
SOMEWHERE = StackFrame("?", "?", 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Limits."""

    lived_s: float = 0.9
    """A thread that was seen once only was no worker."""
    before_s: float = 30.0
    """A queue may feed the others for so long after it vanished."""


def detect(view: View, params: Params) -> Iterator[Answer]:
    """One symptom a worker, from the best source that names it."""
    named: dict[str, Answer] = {}
    for source in (_by_events(view), _by_beats(view), _by_log(view)):
        for subject, answer in source:
            named.setdefault(subject, answer)
    if not named:
        named.update(_vanished(view, params))
    yield from named.values()


def _by_events(view: View) -> Iterator[tuple[str, Answer]]:
    for event in view.window.told.failed:
        name = str(event.get("worker") or "unknown")
        text = f"{name} failed: {event.get('exception')}: {event.get('message')}"
        since_t = float(event.get("t") or view.now_t)
        yield name, symptom(name, Severity.CRITICAL, since_t, text[:300], Source.EVENTS)


def _by_beats(view: View) -> Iterator[tuple[str, Answer]]:
    for worker in view.window.told.workers.values():
        since_t = view.now_t - (worker.progress_age_s or 0.0)
        if worker.state == "failed":
            text = f"{worker.name} says in its beat slot that it failed"
        elif worker.state == "ended" and worker.name in view.waits.awaited and view.is_overdue():
            waiting = ", ".join(view.waits.awaited[worker.name])
            text = f"{worker.name} ended, and {waiting} wait for it"
        else:
            continue
        yield worker.name, symptom(worker.name, Severity.CRITICAL, since_t, text, Source.BEATS)


def _by_log(view: View) -> Iterator[tuple[str, Answer]]:
    last_t = view.progress.last_step_t
    since: dict[str, float] = {}
    newest: dict[str, TracebackSeen] = {}
    for fact in view.window.logs.tracebacks:
        outlived = fact.backlog and last_t is not None and last_t > fact.t
        own = fact.exception not in BY_HAND and fact.subject not in {"unknown", "main", "run"}
        if fact.fatal and own and not outlived:
            since.setdefault(fact.subject, fact.t)
            newest[fact.subject] = fact
    for subject, fact in newest.items():
        text = f"{subject}: {fact.exception}: {fact.message}".rstrip(": ")[:300]
        alive = _is_alive(view, subject)
        yield (
            subject,
            symptom(
                subject, Severity.CRITICAL, since[subject], text, Source.LOG, starts=not alive
            ),
        )  # fmt: skip


def _is_alive(view: View, name: str) -> bool:
    """Is a thread of that name known, and still listed? Then it has caught its exception."""
    names = view.window.samples.names.items()
    return any(key in view.window.tracks.threads for key, known in names if known == name)


def _vanished(view: View, params: Params) -> Iterator[tuple[str, Answer]]:
    last_t = view.progress.last_step_t
    main = view.window.main()
    if last_t is None or not view.is_due() or main is None or main.track.state in ZOMBIE:
        return
    tracks = view.window.tracks
    gone = [
        (view.window.thread_name(pid, tid) or track.name, track, f"thread {tid}")
        for pid, tid, track in tracks.gone_threads
        if _is_worker_thread(view, tid)
    ] + [
        (process.track.name, process.track, f"process {process.sample.pid}")
        for process in tracks.gone_processes
        if _is_worker_process(view, process.sample) and not _left_together(view, process)
    ]
    for name, track, what in gone:
        gone_t = track.gone_t or 0.0
        if track.lived_s() < params.lived_s or gone_t < last_t - params.before_s:
            continue
        if is_helper(ThreadStack(tid=None, name=name, frames=(SOMEWHERE,))):
            continue
        subject = name if name not in {"python", "python3"} else what
        text = f"{subject} ({what}) vanished {duration(max(view.now_t - gone_t, 0.0))} ago"
        yield subject, symptom(subject, Severity.CRITICAL, gone_t, text, Source.PROCESS)


def _left_together(view: View, one: ProcessTrack) -> bool:
    """Did it go in the company of all its siblings? So ends a pool or a loader, not a worker."""
    tracks = view.window.tracks
    kind = (one.sample.ppid, one.sample.comm)
    if any((each.sample.ppid, each.sample.comm) == kind for each in tracks.processes.values()):
        return False
    gone = [each for each in tracks.gone_processes if (each.sample.ppid, each.sample.comm) == kind]
    moments = [each.track.gone_t or 0.0 for each in gone]
    alone = kind[1] == LOADER_WORKER and len(gone) == 1
    return alone or (len(gone) > 1 and max(moments) - min(moments) <= TOGETHER_S)


def _is_worker_thread(view: View, tid: int) -> bool:
    """A run of ours names its worker threads; others in it come and go.

    Seen from another PID namespace its numbers say nothing: then any thread may be one.
    """
    told = {worker.get("native_tid") for worker in view.window.manifest.get("workers") or ()}
    tracks = view.window.tracks
    seen = {number for _, number in tracks.threads} | {
        number for _, number, _ in tracks.gone_threads
    }
    return tid in told or not told & seen


def _is_worker_process(view: View, sample: ProcessSample) -> bool:
    """Compilers, shells and tools come and go; a run of ours names its worker processes."""
    if not sample.is_python:
        return False
    told = {worker.get("pid") for worker in view.window.manifest.get("workers") or ()} - {None}
    return sample.pid in told if told else True


def firing() -> Example:
    """The trainer's own event."""
    event = {
        "kind": "worker-failed", "seq": 3, "t": T0 + 1, "worker": "target-1", "role": "target",
        "exception": "RuntimeError", "message": "boom", "traceback": "",
    }  # fmt: skip
    return example(frames(3, events=(event,)), subject="target-1")


def clear() -> Example:
    """Nobody failed."""
    return example(frames(3))


DETECTOR = Detector(detect=detect, params=Params(), firing=firing, clear=clear)
