"""The same thread owns the interpreter lock at the same place in successive stack samples.

Sees:       owner and innermost frame in the samples of this suspicion, seconds apart.
Means:      a C call does not give the lock back; nothing else can run.
Wrong when: one long computation in C keeps the lock by design and will end. Where no other
            thread has Python to run, the owner keeps nobody waiting: it just works.
Source:     docs/verdicts.md, "stack samples".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dflash_watch.detectors.base import Answer, Detector, Example, View, missing, symptom
from dflash_watch.detectors.examples import example, stacks, stuck_after, thread, worker
from dflash_watch.frame import StackSample, ThreadStack
from dflash_watch.model import Severity, Source
from dflash_watch.readers.waits import is_helper
from dflash_watch.window.samples import leaf


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Limits."""

    apart_s: float = 2.0
    """First and last sample are at least so far apart."""
    waiting: frozenset[str] = frozenset({"wait", "_wait_for_tstate_lock", "select", "poll"})
    """Functions that give the lock back before they wait: their owner flag is a leftover."""


def detect(view: View, params: Params) -> Iterator[Answer]:
    """Owner and leaf equal in all samples of the suspicion."""
    if view.suspect_since_t is None or not view.is_due():
        return
    samples = [
        one for one in view.window.samples.episode(view.suspect_since_t) if one.tool == "py-spy"
    ]
    if len(samples) < 2 or samples[-1].t - samples[0].t < params.apart_s:
        yield missing("run", "two stack samples, some seconds apart")
        return
    owners = [_owner(sample) for sample in samples]
    first = owners[0]
    if first is None or any(one is None or _place(one) != _place(first) for one in owners):
        return
    if not all(_keeps_waiting(sample) for sample in samples):
        return
    place = leaf(first)
    if place is None or place[0] in params.waiting:
        return
    name = view.window.thread_name(samples[0].pid, first.tid or 0) or first.name
    subject = name or f"thread {first.tid}"
    text = f"{subject} owns the interpreter lock in {place[0]} ({place[1]}:{place[2]})"
    text += f" in {len(samples)} samples over {samples[-1].t - samples[0].t:.0f} s"
    yield symptom(subject, Severity.CRITICAL, samples[0].t, text, Source.STACKS)


def _owner(sample: StackSample) -> ThreadStack | None:
    return next((thread for thread in sample.threads if thread.owns_gil), None)


def _keeps_waiting(sample: StackSample) -> bool:
    """Is there another thread that has Python to run?"""
    others = (thread for thread in sample.threads if not thread.owns_gil)
    return any(thread.frames and not is_helper(thread) for thread in others)


def _place(thread: ThreadStack) -> tuple[object, object]:
    return thread.tid, leaf(thread)


def firing() -> Example:
    """Twice the same owner, three seconds apart."""
    silent = stuck_after(14, 12, lambda s: worker("drafter-0", s, step=14))
    held = thread(12, "run.py:spin", name="target-0", owns_gil=True)
    kept = thread(13, "run.py:step", name="drafter-0")
    return example(
        silent, stacks("A", 23, held, kept), stacks("B", 26, held, kept), subject="target-0"
    )


def clear() -> Example:
    """Two owners."""
    silent = stuck_after(14, 12, lambda s: worker("drafter-0", s, step=14))
    one, other = thread(12, "a.py:f", owns_gil=True), thread(13, "b.py:g", owns_gil=True)
    return example(silent, stacks("A", 23, one), stacks("B", 26, other))


DETECTOR = Detector(detect=detect, params=Params(), firing=firing, clear=clear)
