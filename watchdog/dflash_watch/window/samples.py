"""Stack samples: the newest ones, thread names learned from them, and what did not move."""

from __future__ import annotations

from collections import deque

from dflash_watch.frame import StackSample, ThreadStack

KEPT = 8
CONFIRMING = ("A", "B", "C")


class Samples:
    """Stack samples by label, and the names they gave to threads."""

    def __init__(self) -> None:
        self.newest: dict[str, StackSample] = {}
        self.order: deque[StackSample] = deque(maxlen=KEPT)
        self.names: dict[tuple[int, int], str] = {}
        """(pid, tid) -> the name Python gave to the thread."""
        self.error: str | None = None
        """Why the newest request brought no stacks."""

    def take(self, sample: StackSample) -> None:
        """Take one sample."""
        self.newest[sample.label] = sample
        self.order.append(sample)
        if sample.threads and sample.tool != "kernel":
            self.error = None
        elif sample.label != "census":
            self.error = sample.error or f"{sample.tool} gave no threads"
        for thread in sample.threads:
            if thread.tid is not None and thread.name:
                self.names[sample.pid, thread.tid] = thread.name

    def episode(self, since_t: float) -> list[StackSample]:
        """A, B and C of the suspicion that began then, oldest first."""
        found = [self.newest.get(label) for label in CONFIRMING]
        return sorted(
            (one for one in found if one is not None and one.t >= since_t), key=lambda one: one.t
        )


def leaf(thread: ThreadStack) -> tuple[str, str, int] | None:
    """Innermost frame: function, file, line."""
    if not thread.frames:
        return None
    frame = thread.frames[0]
    return frame.name, frame.file, frame.line
