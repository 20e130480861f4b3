"""Stack samples as text: groups with the odd thread first, and what moved between samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dflash_watch.frame import Frame, StackSample, ThreadStack
from dflash_watch.readers.stacks import (
    Comparison,
    Group,
    ThreadChange,
    compare,
    group_processes,
    group_threads,
    label_of,
)
from dflash_watch.readers.waitwords import WAIT_WORDS
from dflash_watch.units import duration, percent
from dflash_watch.window.waits import read_stack_waits

NAMES_LIMIT = 12
FRAMES_LIMIT, KERNEL_LIMIT = 60, 8
MOST_TARGETS = 4
"""Threads named that could end a wait."""
_CHANGE = {
    "blocked": "same place, no CPU",
    "still": "same place, CPU not known",
    "spinning": "same place, a core busy",
    "working": "same place, some CPU",
    "moving": "moves",
    "gone": "gone",
    "new": "new",
    "unknown": "not comparable",
}


UNREAD = "not known, their stacks could not be read:"


def render_sample(sample: StackSample) -> str:
    """One sample: threads grouped by equal stack, helpers folded to one line each."""
    head = f"pid {sample.pid}, sample {sample.label}, by {sample.tool} ({sample.mode})"
    out = [head]
    if sample.error:
        out.append(f"not readable: {sample.error}")
    out += ladder_lines(sample)
    if sample.note:
        out.append(sample.note)
    groups = group_threads(sample)
    for group in groups:
        if not group.helper:
            out += ["", *_group(group)]
    folded = [group for group in groups if group.helper]
    if folded:
        out += ["", "idle by design:" if _has_frames([sample]) else UNREAD]
        out += [f"  {_names(group.threads)}: {_where(group)}" for group in folded]
    return "\n".join(out)


def ladder_lines(sample: StackSample) -> list[str]:
    """Where the tool was from, which better ways were passed over and why, what was done."""
    out = [f"done to the process: {one}" for one in sample.did]
    for rung in sample.ladder:
        named = f"{rung.tool}, {rung.how}" if rung.how else rung.tool
        if rung.outcome != "taken":
            out.append(f"passed over: {named}: {rung.outcome}")
        elif rung.how:
            out.append(f"taken by {named}")
    return out


def way_of(sample: StackSample) -> tuple[str, ...]:
    """The same behind the tool's name, for a screen."""
    head = f"sample {sample.label} of pid {sample.pid} by {sample.tool} ({sample.mode})"
    return (head, *([sample.error] if sample.error else []), *ladder_lines(sample))


def render_diff(samples: Sequence[StackSample], ticks_per_s: int = 100) -> str:
    """What moved between samples and what did not, process by process, the stuck threads first."""
    pids = dict.fromkeys(sample.pid for sample in samples)
    if len(pids) < 2:
        return _diff(compare(samples, ticks_per_s), samples)
    parts = ["\n".join(render_processes(samples)).rstrip()]
    for pid in pids:
        own = [sample for sample in samples if sample.pid == pid]
        parts.append(f"process {pid}\n\n{_diff(compare(own, ticks_per_s), own)}")
    return "\n\n\n".join(parts)


def render_dump(frame: Frame, samples: Sequence[StackSample]) -> str:
    """All processes of a dump: each newest sample, then the comparison where there are several."""
    commands = {one.pid: one.cmd for one in frame.processes or ()}
    ranks = {one.pid: f"rank {one.rank}" for one in frame.processes or () if one.rank is not None}
    out = render_processes(samples, ranks)
    for pid in dict.fromkeys(sample.pid for sample in samples):
        own = [sample for sample in samples if sample.pid == pid]
        out.append(f"== process {pid}: {commands.get(pid, 'command not known')}")
        out.append(render_sample(own[-1]))
        if len(own) > 1:
            out += ["", render_diff(own)]
        out.append("")
    return "\n".join(out).rstrip() if out else "no stack sample could be taken"


def render_processes(
    samples: Sequence[StackSample], names: Mapping[int, str] | None = None
) -> list[str]:
    """Where the main threads of several processes stand, the odd ones first; nothing for one.

    Two that differ only disagree: which of them is right is not said.
    """
    groups = group_processes(samples)
    count = sum(len(one.pids) for one in groups)
    if count < 2:
        return []
    if len(groups) == 1:
        return [f"all {count} main threads stand at {groups[0].leaf}", ""]
    out = [f"main threads of {count} processes:"]
    for one in groups:
        named = [(names or {}).get(pid, f"process {pid}") for pid in one.pids[:NAMES_LIMIT]]
        rest = len(one.pids) - len(named)
        who = ", ".join(named) + (f" and {rest} more" if rest else "")
        out.append(f"  {who}: {one.leaf}, {WAIT_WORDS.get(one.wait, one.wait)}")
    return [*out, ""]


def _group(group: Group) -> list[str]:
    count = f"{len(group.threads)} threads " if len(group.threads) > 1 else ""
    out = [
        f"{count}{_names(group.threads)}: {WAIT_WORDS.get(group.wait, group.wait)}{_kernel(group)}"
    ]
    out += [f"    {name} (kernel)" for name in group.threads[0].kernel_stack[:KERNEL_LIMIT]]
    for frame in group.frames[:FRAMES_LIMIT]:
        line = f":{frame.line}" if frame.line else ""
        out.append(f"    {frame.name} ({frame.file}{line})")
    if len(group.frames) > FRAMES_LIMIT:
        out.append(f"    ... {len(group.frames) - FRAMES_LIMIT} more frames")
    return out


def _kernel(group: Group) -> str:
    first = group.threads[0]
    parts = []
    if any(thread.owns_gil for thread in group.threads):
        parts.append("owns the interpreter lock")
    if first.state:
        parts.append(f"state {first.state}" + (f" in {first.wchan}" if first.wchan else ""))
    if first.call:
        on = {thread.call_on for thread in group.threads}
        is_one = len(on) == 1 and first.call_on is not None
        parts.append(f"{first.call}({first.call_on})" if is_one else first.call)
    return f" ({', '.join(parts)})" if parts else ""


def _names(threads: Sequence[ThreadStack]) -> str:
    named = [
        f"{label_of(one)} [{one.tid}]" if one.name and one.tid else label_of(one)
        for one in threads[:NAMES_LIMIT]
    ]
    rest = len(threads) - len(named)
    return ", ".join(named) + (f" and {rest} more" if rest else "")


def _has_frames(samples: Sequence[StackSample]) -> bool:
    """Was any stack read? If none was, a thread without frames tells nothing about its design."""
    return any(thread.frames for sample in samples for thread in sample.threads)


def _where(group: Group) -> str:
    if not group.frames:
        return "no Python frames"
    frame = group.frames[0]
    return f"{frame.name} ({frame.file})"


def _diff(comparison: Comparison, samples: Sequence[StackSample]) -> str:
    if comparison.count < 2:
        why = next((sample.error for sample in samples if sample.error), "one sample only")
        return f"nothing to compare: {why}"
    out = [f"{comparison.count} samples over {duration(comparison.span_s)}"]
    owner = comparison.gil_owner
    if owner is not None:
        name = owner.name or f"thread {owner.tid}"
        out.append(f"the interpreter lock stayed with {name} at {owner.leaf} in all samples")
    seen: str | None = None
    for one in comparison.threads:
        if one.helper:
            continue
        if one.change != seen:
            out += ["", f"{_CHANGE[one.change]}:"]
            seen = one.change
        out.append(f"  {_told(one)}")
    out += _graph(comparison)
    helpers = [one for one in comparison.threads if one.helper]
    if helpers:
        out += ["", f"{'idle by design:' if _has_frames(samples) else UNREAD} {len(helpers)}"]
    return "\n".join(out)


def _graph(comparison: Comparison) -> list[str]:
    """Who waits for whom, and in which circle; nothing where nobody waits for a thread."""
    waits = read_stack_waits(comparison)
    if not waits.edges:
        return []
    out = ["", "who waits for whom:"]
    for name, edge in waits.edges.items():
        anybody = len(edge.targets) > MOST_TARGETS
        targets = f"any of {len(edge.targets)} others" if anybody else " or ".join(edge.targets)
        out.append(f"  {name} -> {targets} ({edge.reason})")
    if waits.cycle:
        out.append(f"  nobody outside can free: {', '.join(waits.cycle)}")
    for sink, names in waits.awaited.items():
        if not waits.cycle:
            out.append(f"  {sink} waits for nobody; behind it: {', '.join(names)}")
    return out


def _told(one: ThreadChange) -> str:
    name = one.name or f"thread {one.tid}"
    cpu = "" if one.cpu_ratio is None else f", CPU {percent(one.cpu_ratio)}"
    return f"{name}: {one.leaf}, {WAIT_WORDS.get(one.wait, one.wait)}{cpu}"
