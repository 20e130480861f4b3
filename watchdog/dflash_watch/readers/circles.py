"""Is a process closed: does every thread wait for another thread of the same process?

Nobody outside can wake such a process, and nobody inside runs who could: it is a deadlock, whatever
the locks and queues are called. No beat page is needed, two stack samples are.
"""

from __future__ import annotations

from dflash_watch.model import Record
from dflash_watch.readers.stacks import Comparison, ThreadChange

INSIDE = frozenset({"lock", "queue-get", "queue-put", "join", "condition"})
"""Waits that only another thread of the process can end."""


class Circle(Record, frozen=True, kw_only=True):
    """Threads that wait for each other."""

    kind: str
    """`lock`: at least two wait for locks, whose owners must be among them; `queue`: some wait to
    give or take and nobody is left to take or give."""
    threads: tuple[ThreadChange, ...]
    """Those in locks for `lock`, those at queues for `queue`."""


def closed_circle(comparison: Comparison) -> Circle | None:
    """The circle, when all threads are blocked on each other in all samples; else None.

    None also when any thread moved, is new, cannot be compared, or waits for something outside: the
    network, a device, a child, a file, the clock. Workers that are processes have queues that reach
    outside, so ask this of the only process of a run, or of each and think.
    """
    threads = [one for one in comparison.threads if not one.helper and one.change != "gone"]
    if comparison.count < 2 or any(one.change != "blocked" for one in threads):
        return None
    if not all(one.wait in INSIDE for one in threads):
        return None
    locked = tuple(one for one in threads if one.wait == "lock")
    if len(locked) >= 2:
        return Circle(kind="lock", threads=locked)
    queued = tuple(one for one in threads if one.wait.startswith("queue-"))
    return Circle(kind="queue", threads=queued) if queued else None
