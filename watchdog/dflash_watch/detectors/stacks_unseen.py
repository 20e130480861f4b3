"""Stacks were asked for and cannot be had.

Sees:       the newest stack sample's error, or a gap of that source.
Means:      no permission, no Python, a tool that fails; the diagnosis must do without.
Wrong when: the process ended while it was being read. What we leave undone ourselves (a dry run,
            too many samples) is no symptom of the run.
Source:     docs/frames.md, StackSample.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dflash_watch.detectors.base import Answer, Detector, Example, View, symptom
from dflash_watch.detectors.examples import PID, T0, example, frames, stacks, thread
from dflash_watch.frame import StackSample
from dflash_watch.model import Severity, Source

LEFT_UNDONE = "not taken: "
"""How a refusal of the watcher itself begins (actions.py)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """None."""


def detect(view: View, _params: Params) -> Iterator[Answer]:
    """Only while the process is there."""
    window = view.window
    if window.is_gone():
        return
    gap = window.gaps.get("stacks")
    reason = window.samples.error or (gap.reason if gap is not None else None)
    newest = window.samples.order[-1] if window.samples.order else None
    if newest is not None and newest.tool == "none" and (reason or "").startswith(LEFT_UNDONE):
        return
    if reason is not None:
        since_t = view.now_t if newest is None else newest.t
        yield symptom("run", Severity.INFO, since_t, reason, Source.STACKS)


def firing() -> Example:
    """Refused."""
    refused = StackSample(t=T0 + 2, pid=PID, label="A", tool="kernel", error="permission denied")
    return example(frames(2), refused, subject="run")


def clear() -> Example:
    """Given, then left out by the watcher itself."""
    left = StackSample(t=T0 + 2, pid=PID, label="B", tool="none", error="not taken: --dry-run")
    return example(frames(2), stacks("A", 2, thread(10, "a.py:f")), left)


DETECTOR = Detector(detect=detect, params=Params(), firing=firing, clear=clear)
