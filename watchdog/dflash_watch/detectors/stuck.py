"""Threads of the whole process tree that stay where they wait. No detector of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dflash_watch.detectors.base import View, symptom
from dflash_watch.frame import StackFrame, StackSample, ThreadStack
from dflash_watch.model import Evidence, Severity, Source, Symptom
from dflash_watch.readers.places import place_of
from dflash_watch.readers.stacks import ThreadChange, leaf_of
from dflash_watch.readers.waits import is_helper, wait_reason
from dflash_watch.units import duration
from dflash_watch.window.crew import rank_of

BEFORE_STEPS_S = 90.0
"""Before the first step, and in a phase that nobody announced, nothing may have moved for so long
until a wait counts."""
WORKS_S = 600.0
"""Past its limit by so much, a wait counts although something of the run still works."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stuck:
    """One thread that waits and does not move."""

    pid: int
    name: str
    wait: str
    leaf: str
    frames: tuple[StackFrame, ...]
    how: str
    """`in 3 samples over 5.0 s, no CPU`, `in one sample`."""

    @property
    def place(self) -> str | None:
        """What it is there for (`places.place_of`)."""
        return place_of(self.frames, self.wait)


def is_silent(view: View) -> bool:
    """Is a step due, or has nothing moved for long before the first one?"""
    phase = view.progress.phase
    if phase is not None and phase.source == "events":
        return False
    if phase is not None or view.progress.first_step_t is None:
        return not view.takes_stacks or view.progress.still_s(view.window) >= BEFORE_STEPS_S
    return view.is_due()


def stuck_threads(view: View) -> Iterator[Stuck]:
    """Threads at one place in all samples of the suspicion; the main process first.

    Where no more samples can come (pasted evidence), those that wait in the only one.
    """
    for pid, comparison in view.standing.items():
        how = f"in {comparison.count} samples over {duration(comparison.span_s)}"
        for one in comparison.that("blocked", "still"):
            yield _changed(pid, one, f"{how}, no CPU" if one.change == "blocked" else how)
    for sample in view.window.samples.order if not view.takes_stacks else ():
        if sample.pid not in view.standing:
            yield from _of_one(sample)


def stuck_symptom(
    view: View, stuck: Stuck, severity: Severity, text: str, *more: Evidence
) -> Symptom:
    """A symptom of the run that quotes where the thread stands, dated when progress ended."""
    since_t = view.now_t - (view.age_s() or view.progress.still_s(view.window))
    rank = rank_of(view.window.tracks, stuck.pid)
    who = stuck.name if rank is None else f"{stuck.name} of rank-{rank}"
    told = f"{who} {text}: {stuck.leaf} {stuck.how}"
    starts = not view.progress.work.moves or view.silent_over_s() > WORKS_S
    return symptom("run", severity, since_t, told, Source.STACKS, *more, starts=starts)


def _changed(pid: int, one: ThreadChange, how: str) -> Stuck:
    name = one.name or f"thread {one.tid}"
    return Stuck(pid=pid, name=name, wait=one.wait, leaf=one.leaf, frames=one.frames, how=how)


def _of_one(sample: StackSample) -> Iterator[Stuck]:
    for thread in sample.threads:
        if is_helper(thread) or not thread.frames or wait_reason(thread) == "none":
            continue
        yield _seen_once(sample.pid, thread)


def _seen_once(pid: int, thread: ThreadStack) -> Stuck:
    name = thread.name or f"thread {thread.tid}"
    return Stuck(
        pid=pid, name=name, wait=wait_reason(thread), leaf=leaf_of(thread), frames=thread.frames,
        how="in the only sample",
    )  # fmt: skip
