"""Small timelines for the examples of detectors. No detector of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dflash_watch.detectors.base import Example, View
from dflash_watch.frame import (
    BeatPage,
    BeatWorker,
    Frame,
    LogSample,
    ProcessSample,
    Record,
    RunSample,
    StackFrame,
    StackSample,
    ThreadStack,
    Ticker,
)
from dflash_watch.limits import LearnedLimits
from dflash_watch.progress import Progress
from dflash_watch.readers.facts import Signature
from dflash_watch.readers.logtext import LogReader
from dflash_watch.readers.stacks import compare
from dflash_watch.window import Window
from dflash_watch.window.waits import read_waits

T0 = 1_790_000_000.0
PID = 10


def process(i: int, **changes: object) -> ProcessSample:
    """The main process, busy half of the time; `changes` override."""
    base: dict[str, Any] = {
        "pid": PID, "ppid": 1, "start_ticks": 500, "age_s": 60.0 + i, "state": "S",
        "comm": "python", "cmd": "python train.py", "is_python": True, "cpu_ticks": 1000 + 50 * i,
        "rchar": 0, "wchar": 0,
    }  # fmt: skip
    base.update(changes)
    return ProcessSample(**base)


def still(i: int) -> tuple[ProcessSample, ...]:
    """The main process, nothing moves."""
    return (process(i, cpu_ticks=1000),)


def frames(count: int, start: int = 0, **parts: object) -> tuple[Frame, ...]:
    """Frames a second apart; a part is a value or a function of the frame's number."""
    made = []
    for i in range(start, start + count):
        now: dict[str, Any] = {
            name: part(i) if callable(part) else part for name, part in parts.items()
        }
        now.setdefault("processes", (process(i),))
        now.setdefault("run", RunSample(state="found", how="pid", root_pid=PID))
        made.append(Frame(seq=i + 10, t=T0 + i, boot_s=1000.0 + i, **now))
    return tuple(made)


def beats(*workers: BeatWorker, ticker_age_s: float = 0.1) -> BeatPage:
    """A beat page with a living ticker."""
    ticker = Ticker(beats=100, age_s=ticker_age_s, late_s=0.0, max_late_s=0.0)
    return BeatPage(workers=workers, ticker=ticker)


def worker(name: str, stuck_s: float = 0.1, step: int = 50, **more: object) -> BeatWorker:
    """A beat slot whose last progress was so long ago; a wait, if any, is as old."""
    role = name.rsplit("-", 1)[0]
    slot: dict[str, Any] = {"wait_age_s": stuck_s, "step": step, "progress_age_s": stuck_s}
    slot.update(more)
    return BeatWorker(name=name, role=role, **slot)


def stuck_after(
    healthy: int, count: int, *workers: Callable[[float], BeatWorker]
) -> tuple[Frame, ...]:
    """Steps go on for `healthy` frames, then nothing moves for `count`."""
    begun = frames(
        healthy, beats=lambda i: beats(worker("drafter-0", step=i + 1), worker("target-0"))
    )

    def page(i: int) -> BeatPage:
        return beats(*(make(i - healthy + 1.0) for make in workers))

    return begun + frames(count, start=healthy, beats=page, processes=still)


def log(text: str, **more: object) -> tuple[LogSample, ...]:
    """New text in the one log."""
    lines, returns = text.count("\n"), text.count("\r")
    base: dict[str, Any] = {
        "path": "/runs/a/train.log", "via": "fd 1", "text": text, "newlines": lines,
        "carriage_returns": returns,
    }  # fmt: skip
    base.update(more)
    return (LogSample(**base),)


def stacks(label: str, i: float, *threads: ThreadStack, pid: int = PID) -> StackSample:
    """A stack sample taken i seconds after the start."""
    return StackSample(t=T0 + i, pid=pid, label=label, tool="py-spy", threads=threads)


def thread(
    tid: int, leaf: str, line: int = 1, name: str | None = None, **more: object
) -> ThreadStack:
    """A thread that stands in one function; `leaf` is `file:function`."""
    file, function = leaf.rsplit(":", 1)
    rest: dict[str, Any] = dict(more)
    return ThreadStack(tid=tid, name=name, frames=(StackFrame(function, file, line),), **rest)


def standing(tid: int, name: str, *places: str, **more: object) -> ThreadStack:
    """A thread that stands at `file:function` places, innermost first, and uses no CPU."""
    parts = [place.rsplit(":", 1) for place in places]
    frames = tuple(StackFrame(function, file, 7) for file, function in parts)
    rest: dict[str, Any] = {"cpu_ticks": 70, "state": "S", **more}
    return ThreadStack(tid=tid, name=name, frames=frames, **rest)


def twice(*threads: ThreadStack, steps: int = 14, pid: int = PID) -> tuple[Record, ...]:
    """Steps end, nothing moves, and two samples find the same threads at the same places."""
    silent = stuck_after(steps, 12, lambda s: worker("drafter-0", s, step=steps))
    at = (("A", steps + 9), ("B", steps + 12))
    samples = [stacks(label, i, *threads, pid=pid) for label, i in at]
    return (*silent, *samples)


def build_view(
    example: Example,
    suspect_since_t: float | None = T0,
    signatures: Sequence[Signature] = (),
) -> View:
    """The view after the last record of an example."""
    window, progress, limits = (
        Window(lambda: LogReader(signatures), signatures),
        Progress(),
        LearnedLimits(),
    )
    for record in example.records:
        window.take(record)
        gap = progress.advance(window)
        if gap is not None:
            limits.observe(gap.phase, gap.longest_s, gap.steps, gap.over_s)
    waits = read_waits(window.told.workers)
    taken = window.samples.episode(suspect_since_t or T0)
    others = window.samples.other_episodes(suspect_since_t or T0)
    return View(
        comparison=compare(taken) if len(taken) >= 2 else None,
        standing={
            samples[0].pid: compare(samples)
            for samples in (taken, *others.values())
            if len(samples) >= 2
        },
        window=window, progress=progress, limit=limits.limit("training"), waits=waits,
        is_taught=limits.is_taught("training"),
        options=example.options, suspect_since_t=suspect_since_t,
    )  # fmt: skip


def example(*records: Record | tuple[Record, ...], subject: str | None = None) -> Example:
    """An example from records and runs of them."""
    flat: list[Record] = []
    for one in records:
        flat.extend(one if isinstance(one, tuple) else (one,))
    return Example(records=tuple(flat), subject=subject)


def begun(**event: object) -> Example:
    """Something that an event has announced: `kind` and what names it."""
    begin = {"seq": 1, "t": T0, "edge": "begin", **event}
    return example(frames(2, events=(begin,)), subject="run")


def over(**event: object) -> Example:
    """The same, ended."""
    edges = enumerate(("begin", "end"), 1)
    events = tuple({"seq": seq, "t": T0, "edge": edge, **event} for seq, edge in edges)
    return example(frames(2, events=events))
