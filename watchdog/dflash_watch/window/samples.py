"""Stack samples: the newest ones, thread names learned from them, and what did not move."""

from __future__ import annotations

from collections import deque

from dflash_watch.frame import StackSample, ThreadStack

KEPT = 8
OTHERS_KEPT = 32
OTHER = "/"
"""Stands in the label of a sample of a further process."""
CONFIRMING = ("A", "B", "C")


class Samples:
    """Stack samples by label, and the names they gave to threads."""

    def __init__(self) -> None:
        self.newest: dict[str, StackSample] = {}
        self.order: deque[StackSample] = deque(maxlen=KEPT)
        self.names: dict[tuple[int, int], str] = {}
        """(pid, tid) -> the name Python gave to the thread."""
        self._others: dict[tuple[int, str], StackSample] = {}
        self.error: str | None = None
        """Why the newest request brought no stacks."""

    def take(self, sample: StackSample) -> None:
        """Take one sample; those of further processes (`A/4100`) decide nothing about the run."""
        self._name(sample)
        if OTHER in sample.label:
            self._others[sample.pid, sample.label] = sample
            while len(self._others) > OTHERS_KEPT:
                self._others.pop(next(iter(self._others)))
            return
        self.newest[sample.label] = sample
        self.order.append(sample)
        if sample.threads and sample.tool != "kernel":
            self.error = None
        elif sample.label != "census":
            self.error = sample.error or f"{sample.tool} gave no threads"

    def _name(self, sample: StackSample) -> None:
        for thread in sample.threads:
            if thread.tid is not None and thread.name:
                self.names[sample.pid, thread.tid] = thread.name

    def episode(self, since_t: float) -> list[StackSample]:
        """A, B and C of the suspicion that began then, oldest first."""
        found = [self.newest.get(label) for label in CONFIRMING]
        taken = sorted(
            (one for one in found if one is not None and one.t >= since_t), key=lambda one: one.t
        )
        return [one for one in taken if one.pid == taken[-1].pid]

    def other_episodes(self, since_t: float) -> dict[int, list[StackSample]]:
        """Samples of the other processes of that suspicion by pid, oldest first."""
        found: dict[int, list[StackSample]] = {}
        for sample in sorted(self._others.values(), key=lambda one: one.t):
            if sample.t >= since_t and sample.label.partition(OTHER)[0] in CONFIRMING:
                found.setdefault(sample.pid, []).append(sample)
        return found


def leaf(thread: ThreadStack) -> tuple[str, str, int] | None:
    """Innermost frame: function, file, line."""
    if not thread.frames:
        return None
    frame = thread.frames[0]
    return frame.name, frame.file, frame.line
