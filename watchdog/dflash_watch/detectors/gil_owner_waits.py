"""A thread owns the interpreter lock while it waits inside a C function, and others want the lock.

Sees:       one dump with C frames: pystack or py-spy with `--native`, gdb joined with either.
Means:      a C extension waits (sleep, socket, lock, device) without giving the lock back.
Wrong when: the dump was taken in the moment in which the call returned.
Source:     Python's C interface, "Releasing the GIL from extension code".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dflash_watch.detectors.base import Answer, Detector, Example, View, symptom
from dflash_watch.detectors.examples import example, stacks, stuck_after, worker
from dflash_watch.frame import StackFrame, StackSample, ThreadStack
from dflash_watch.model import Severity, Source
from dflash_watch.readers.stacks import short_file
from dflash_watch.readers.waits import is_native, native_leaf, wait_reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Limits."""

    waits: frozenset[str] = frozenset(
        {"sleep", "socket", "lock", "poll", "join", "file-lock", "device", "collective", "file"}
    )
    """Reasons for which a C function has to give the lock back first."""


def detect(view: View, params: Params) -> Iterator[Answer]:
    """The newest dump that shows it."""
    if view.takes_stacks and not view.is_due():
        return
    for sample in reversed(view.window.samples.order):
        owner = next((one for one in sample.threads if one.owns_gil), None)
        wanting = sum(one.waits_gil is True or wait_reason(one) == "gil" for one in sample.threads)
        if owner is None or not wanting or not native_leaf(owner.frames):
            continue
        reason = wait_reason(owner)
        if reason in params.waits:
            subject = _subject(view, sample, owner)
            text = f"{subject} owns the interpreter lock and waits in {owner.frames[0].name}"
            text += f" ({reason}){_caller(owner)}; {wanting} "
            text += "other wants the lock" if wanting == 1 else "others want the lock"
            yield symptom(subject, Severity.CRITICAL, sample.t, text, Source.STACKS)
            return


def _subject(view: View, sample: StackSample, owner: ThreadStack) -> str:
    name = view.window.thread_name(sample.pid, owner.tid or 0) or owner.name
    return name if name and name != "python" else f"thread {owner.tid}"


def _caller(owner: ThreadStack) -> str:
    """The innermost Python function: where the call stands in the script."""
    frame = next((one for one in owner.frames if not is_native(one)), None)
    return f", called by {frame.name} {short_file(frame.file)}:{frame.line}" if frame else ""


def _story(leaf: str) -> Example:
    """A thread in C with the lock, another that wants it."""
    silent = stuck_after(14, 12, lambda s: worker("drafter-0", s, step=14))
    frames = (StackFrame(leaf, "libc.so.6", 0), StackFrame("pull", "run.py", 5))
    wants = (StackFrame("take_gil", "ceval_gil.h", 9), StackFrame("step", "run.py", 8))
    held = ThreadStack(tid=12, name="target-0", frames=frames, owns_gil=True)
    kept = ThreadStack(tid=13, name="drafter-0", frames=wants, waits_gil=True)
    return example(
        silent, stacks("A", 23, held, kept), subject="target-0" if leaf == "nanosleep" else None
    )


def firing() -> Example:
    """It sleeps."""
    return _story("nanosleep")


def clear() -> Example:
    """It computes: the lock will come round."""
    return _story("sgemm_kernel")


DETECTOR = Detector(detect=detect, params=Params(), firing=firing, clear=clear)
