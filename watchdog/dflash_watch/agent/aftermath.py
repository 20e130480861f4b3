"""How a sample leaves the process: what a reader must know, and freeing what was left stopped."""

from __future__ import annotations

import os
import signal
import time
from typing import Any, List, Optional, Tuple

from dflash_watch.agent import proc
from dflash_watch.agent.kernelview import KernelView

SETTLE_S = 1.0
"""A dead tracer's threads go on at once; so long is waited for it."""
TOLD = 3
"""Threads in D that are described."""


def notes_on_states(
    rows: List[List[Any]], view: KernelView, before: proc.Stat, after: Optional[proc.Stat]
) -> List[str]:
    """Threads in D, a stopped target, and whether it was so before."""
    notes = []
    blocked = [row for row in rows if row[2] == "D"]
    if blocked:
        told = [f"{row[1]} [{row[0]}]{_where(row, view)}" for row in blocked[:TOLD]]
        rest = f" and {len(blocked) - TOLD} more" if len(blocked) > TOLD else ""
        notes.append(
            f"{count_of(len(blocked))} in state D (uninterruptible): {', '.join(told)}{rest}"
        )
    if before.state in "Tt":
        notes.append(f"the process was stopped (state {before.state}) before the sample")
    elif after is not None and after.state in "Tt":
        notes.append(
            f"the process is stopped (state {after.state}) since the sample: continue it with"
            " kill -CONT"
        )
    if after is None:
        notes.append("the process ended during the sample")
    return notes


def count_of(number: int) -> str:
    """`1 thread`, `2 threads`."""
    return f"{number} thread" + ("" if number == 1 else "s")


def _where(row: List[Any], view: KernelView) -> str:
    stack = view.stack(row[0])[:4]
    return " in " + (" < ".join(stack) if stack else str(row[6] or "?"))


def tracer_of(root: str, pid: int) -> int:
    """Who traces any of its threads; 0: nobody."""
    try:
        names = os.listdir(f"{root}/{pid}/task")
    except OSError:
        return 0
    for name in names:
        text = proc.read_text(f"{root}/{pid}/task/{name}/status", 4096) or ""
        tracer = proc.parse_pairs(text).get("TracerPid", "0")
        if tracer not in ("0", ""):
            return int(tracer)
    return 0


def set_free(root: str, pid: int, state_before: str) -> Tuple[str, ...]:
    """After a sampler that stops: see that nothing is left stopped, and continue what is.

    Args:
        root: `/proc`.
        pid: the process.
        state_before: its state before the sample; one that was stopped already is left alone.

    Returns:
        What was done or is wrong, for people; empty when all is well.
    """
    if state_before in "Tt" or _goes_on(root, pid):
        return ()
    tracer = tracer_of(root, pid)
    if tracer:
        return (f"WARNING: process {tracer} still traces it after the sample: kill {tracer}",)
    try:
        os.kill(pid, signal.SIGCONT)
    except OSError as error:
        return (f"WARNING: left stopped, and SIGCONT is refused ({error.strerror})",)
    if _goes_on(root, pid):
        return ("it was left stopped by the sample: continued with SIGCONT",)
    return ("WARNING: left stopped by the sample, and SIGCONT did not help: kill -CONT it",)


def _goes_on(root: str, pid: int) -> bool:
    """No thread stopped or traced, within SETTLE_S."""
    end_s = time.monotonic() + SETTLE_S
    while True:
        if not any(state in "Tt" for state in states_of(root, pid)):
            return True
        if time.monotonic() >= end_s:
            return False
        time.sleep(0.02)


def states_of(root: str, pid: int) -> List[str]:
    """One letter a thread, as in `stat`."""
    try:
        names = os.listdir(f"{root}/{pid}/task")
    except OSError:
        return []
    texts = (proc.read_text(f"{root}/{pid}/task/{name}/stat", proc.SHORT) for name in names)
    return [text.rpartition(")")[2].split()[0] for text in texts if text and ")" in text]
