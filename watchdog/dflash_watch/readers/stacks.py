"""Stack samples read: threads that stand at the same place, and what moved between samples.

Pure functions over `StackSample`. Text of other tools becomes one in `stackparse`; drawing is in
`render/stacktext`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from dflash_watch.frame import StackFrame, StackSample, ThreadStack
from dflash_watch.model import Record
from dflash_watch.readers.waits import is_helper, wait_reason

IDLE_RATIO = 0.02
"""Share of one core below which a thread counts as not computing."""
BUSY_RATIO = 0.5
"""Share of one core from which a thread at one place counts as spinning."""

_LIBRARY = re.compile(r"^.*?/(?:site-packages|dist-packages|lib/python3\.\d+)/")


class Group(Record, frozen=True, kw_only=True):
    """Threads with equal stacks."""

    threads: tuple[ThreadStack, ...]
    frames: tuple[StackFrame, ...]
    """Innermost first, files shortened; lines are those of the first thread."""
    wait: str
    helper: bool


class ThreadChange(Record, frozen=True, kw_only=True):
    """One thread over the samples."""

    tid: int | None
    name: str | None
    change: str
    """`blocked` same place, no CPU; `spinning` same place, a core; `working` same place, some CPU;
    `still` same place, CPU not known; `moving` another place; `gone`, `new`; `unknown`."""
    leaf: str
    """`get queue.py:171` in the last sample that has the thread; `no Python frames` without any."""
    wait: str
    helper: bool = False
    cpu_ratio: float | None = None
    """CPU seconds a second between the first and the last sample."""
    frames: tuple[StackFrame, ...] = ()
    """Of the last sample that has the thread, innermost first."""
    state: str | None = None


class Comparison(Record, frozen=True, kw_only=True):
    """What happened between the first and the last of some samples of one process."""

    span_s: float
    count: int
    threads: tuple[ThreadChange, ...] = ()
    """Those that changed least first, helpers last."""
    gil_owner: ThreadChange | None = None
    """The thread that held the interpreter lock at the same place in all samples."""

    def that(self, *changes: str) -> tuple[ThreadChange, ...]:
        """Threads with one of these changes, helpers left out."""
        return tuple(one for one in self.threads if one.change in changes and not one.helper)


def short_file(path: str) -> str:
    """Path without the environment it lies in: `torch/utils/data/dataloader.py`."""
    return _LIBRARY.sub("", path)


def leaf_of(thread: ThreadStack) -> str:
    """`get queue.py:171`, the innermost frame."""
    if not thread.frames:
        return "no Python frames"
    frame = thread.frames[0]
    line = f":{frame.line}" if frame.line else ""
    return f"{frame.name} {short_file(frame.file)}{line}"


def label_of(thread: ThreadStack) -> str:
    """The thread's name, else its number."""
    return thread.name or (f"thread {thread.tid}" if thread.tid else "thread")


def stack_key(thread: ThreadStack) -> str:
    """Equal for threads at the same place: `function@file` of each frame, the line at the leaf."""
    if not thread.frames:
        return f"kernel:{thread.state}:{thread.wchan or thread.syscall}"
    names = ";".join(f"{frame.name}@{short_file(frame.file)}" for frame in thread.frames)
    return f"{thread.frames[0].line};{names}"


def group_threads(sample: StackSample) -> tuple[Group, ...]:
    """Threads by equal stack: the smallest groups first (the odd one stands out), helpers last."""
    by_key: dict[tuple[str, bool], list[ThreadStack]] = {}
    for thread in sample.threads:
        by_key.setdefault((stack_key(thread), is_helper(thread)), []).append(thread)
    groups = [
        Group(
            threads=tuple(sorted(threads, key=lambda one: (one.name or "~", one.tid or 0))),
            frames=tuple(
                StackFrame(frame.name, short_file(frame.file), frame.line)
                for frame in threads[0].frames
            ),
            wait=wait_reason(threads[0]),
            helper=helper,
        )
        for (_, helper), threads in by_key.items()
    ]
    return tuple(sorted(groups, key=_order))


class Standing(Record, frozen=True, kw_only=True):
    """Processes whose main threads stand at the same place."""

    pids: tuple[int, ...]
    leaf: str
    wait: str
    state: str | None


def group_processes(samples: Sequence[StackSample]) -> tuple[Standing, ...]:
    """Processes by where their main threads stand: the smallest group, the odd one, first.

    Args:
        samples: of several processes; of each the newest that has threads counts.
    """
    newest = {sample.pid: sample for sample in samples if sample.threads}
    groups: dict[str, list[tuple[int, ThreadStack]]] = {}
    for pid, sample in newest.items():
        main = _main_thread(sample)
        groups.setdefault(stack_key(main), []).append((pid, main))
    found = [
        Standing(
            pids=tuple(sorted(pid for pid, _ in members)),
            leaf=leaf_of(members[0][1]),
            wait=wait_reason(members[0][1]),
            state=members[0][1].state,
        )
        for members in groups.values()
    ]
    return tuple(sorted(found, key=lambda one: (len(one.pids), one.pids)))


def _main_thread(sample: StackSample) -> ThreadStack:
    named = (one for one in sample.threads if one.name == "MainThread" or one.tid == sample.pid)
    return next(named, sample.threads[0])


def compare(samples: Sequence[StackSample], ticks_per_s: int = 100) -> Comparison:
    """What moved between samples of one process, oldest first; two or more to say anything.

    Args:
        samples: of one process; those that failed or saw the kernel's view only may be among them.
        ticks_per_s: of the watched host's `/proc` (Hello.ticks_per_s).
    """
    taken = [sample for sample in samples if sample.threads]
    if not taken:
        return Comparison(span_s=0.0, count=0)
    span_s = taken[-1].t - taken[0].t
    by_thread: dict[tuple[int | None, str | None], list[ThreadStack | None]] = {}
    for i, sample in enumerate(taken):
        for thread in sample.threads:
            key = (thread.tid, thread.name if thread.tid is None else None)
            by_thread.setdefault(key, [None] * len(taken))[i] = thread
    changes = [_change(row, span_s, ticks_per_s) for row in by_thread.values()]
    order = ("blocked", "still", "spinning", "working", "gone", "new", "moving", "unknown")
    changes.sort(key=lambda one: (one.helper, order.index(one.change), one.name or "~"))
    return Comparison(
        span_s=span_s,
        count=len(taken),
        threads=tuple(changes),
        gil_owner=_gil_owner(taken, changes),
    )


def _change(row: Sequence[ThreadStack | None], span_s: float, ticks_per_s: int) -> ThreadChange:
    seen = [thread for thread in row if thread is not None]
    first, last = seen[0], seen[-1]
    ratio = _cpu_ratio(first, last, span_s, ticks_per_s) if len(seen) == len(row) > 1 else None
    if row[-1] is None:
        change = "gone"
    elif row[0] is None and len(row) > 1:
        change = "new"
    elif len(row) < 2:
        change = "unknown"
    else:
        change = _motion(seen, ratio)
    return ThreadChange(
        tid=last.tid,
        name=last.name or first.name,
        change=change,
        leaf=leaf_of(last),
        wait=wait_reason(last),
        helper=is_helper(last),
        cpu_ratio=ratio,
        frames=last.frames,
        state=last.state,
    )


def _motion(seen: Sequence[ThreadStack], ratio: float | None) -> str:
    if not all(thread.frames for thread in seen):
        if ratio is None:
            return "unknown"
        return "blocked" if ratio <= IDLE_RATIO else "moving"
    if len({_place(thread) for thread in seen}) > 1:
        return "moving"
    if ratio is None:
        return "still"
    if ratio <= IDLE_RATIO:
        return "blocked"
    return "spinning" if ratio >= BUSY_RATIO else "working"


def _place(thread: ThreadStack) -> str:
    """Where a thread stands; a loop around one blocking call counts as one place."""
    names = ";".join(f"{frame.name}@{frame.file}" for frame in thread.frames)
    reason = wait_reason(thread)
    return names if reason not in ("none", "unknown") else f"{thread.frames[0].line};{names}"


def _cpu_ratio(
    first: ThreadStack, last: ThreadStack, span_s: float, ticks_per_s: int
) -> float | None:
    if first.cpu_ticks is None or last.cpu_ticks is None or span_s <= 0:
        return None
    return max(last.cpu_ticks - first.cpu_ticks, 0) / ticks_per_s / span_s


def _gil_owner(
    taken: Sequence[StackSample], changes: Sequence[ThreadChange]
) -> ThreadChange | None:
    if len(taken) < 2:
        return None
    owners = [next((one for one in sample.threads if one.owns_gil), None) for sample in taken]
    places = {
        None if owner is None else (owner.tid, owner.name, stack_key(owner)) for owner in owners
    }
    first = owners[0]
    if first is None or len(places) != 1:
        return None
    return next(one for one in changes if one.tid == first.tid and one.name == first.name)


def _order(group: Group) -> tuple[bool, int, bool, str]:
    return (group.helper, len(group.threads), not group.frames, group.threads[0].name or "~")
