"""Stacks of one process at one moment, joined with what the kernel says of each thread.

Climbs the ladder (ladder.py); where no rung bears the kernel's view stands in. Runs in a disposable
child; which rungs were tried, and why they were passed over, is told with each sample.
"""

from __future__ import annotations

import time
from typing import Any, Dict, List

from dflash_watch.agent import faultdump, proc, rights, tids
from dflash_watch.agent.aftermath import notes_on_states, states_of
from dflash_watch.agent.kernelview import KernelView, kernel_view, machine
from dflash_watch.agent.ladder import Ladder, NeedsTool
from dflash_watch.agent.means import BUDGET_S, Means
from dflash_watch.agent.probes.threads import ThreadReader


def take_stacks(root: str, pid: int, label: str, means: Means) -> Dict[str, Any]:
    """`frame.StackSample` of a process; bounded to BUDGET_S and one run of a tool.

    Where the watcher's py-spy could do better than what is here: `{"needs_tool": True}`.

    Args:
        root: `/proc`.
        pid: the process.
        label: handed back.
        means: what it may be taken with.
    """
    started_s, t = time.monotonic(), time.time()
    sample: Dict[str, Any] = {"type": "stacks", "t": round(t, 3), "pid": pid, "label": label}
    before = proc.read_stat(root, pid)
    if before is None:
        why = "is hidden from this user (hidepid): watch as its user or as root"
        error = f"process {pid} {why}" if rights.is_hidden(pid) else f"no process {pid} here"
        return dict(sample, tool="kernel", error=error)
    states = states_of(root, pid)
    ladder = Ladder(root, pid, means, before, states, started_s + BUDGET_S)
    try:
        dump = ladder.climb()
    except NeedsTool:
        return {"needs_tool": True}
    rows = _rows(root, pid)
    sample["duration_s"] = round(time.monotonic() - started_s, 3)
    after = proc.read_stat(root, pid)
    view = KernelView(root, pid, machine())
    notes = [*notes_on_states(rows, view, before, after), *filter(None, [dump.note])]
    if dump.threads is None:
        sample.update(kernel_view(view, rows), error=dump.error)
        ladder.note("kernel", None, "taken")
    else:
        sample.update(tool=ladder.tool, mode=ladder.mode, raw=dump.raw)
        name_threads(root, pid, ladder.tool, dump.threads, [row[0] for row in rows])
        by_tid = {row[0]: row for row in rows}
        sample["threads"] = [join(thread, by_tid, view) for thread in dump.threads]
    sample["ladder"] = ladder.rungs
    if ladder.did:
        sample["did"] = ladder.did
    if notes:
        sample["note"] = "; ".join(notes)
    return sample


def _rows(root: str, pid: int) -> List[List[Any]]:
    return ThreadReader(root).read([pid], with_switches=False)[0].get(str(pid), [])


def name_threads(
    root: str, pid: int, tool: str, threads: List[Dict[str, Any]], here: List[int]
) -> None:
    """Give each thread its number as counted here, and the main one its name."""
    nameless = [one["ident"] for one in threads if one["tid"] is None and one.get("ident")]
    if nameless:
        main = next((one["ident"] for one in threads if one["name"] == "MainThread"), None)
        if tool == faultdump.NAME:
            main = faultdump.main_of(threads)
        found = tids.by_stack(root, pid, nameless, here, main)
    else:
        found = tids.inner_tids(root, pid, here) or {}
    for thread in threads:
        key = thread.get("ident") if thread["tid"] is None else thread["tid"]
        thread["tid"] = found.get(key or 0, thread["tid"])
        if thread["tid"] == pid and thread["name"] is None:
            thread["name"] = "MainThread"


def join(thread: Dict[str, Any], by_tid: Dict[int, List[Any]], view: KernelView) -> Dict[str, Any]:
    """A thread with its state, ticks, wchan and system call, where its number is known."""
    joined = {key: value for key, value in thread.items() if key != "ident"}
    row = by_tid.get(thread["tid"] or 0)
    if row is not None:
        joined["name"] = thread["name"] or row[1]
        joined.update(view.of(row, with_stack=row[2] == "D"))
    return {key: value for key, value in joined.items() if value is not None or key == "tid"}
