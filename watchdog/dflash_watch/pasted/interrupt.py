"""The traceback of an interrupt is a stack: where a living process stood when somebody gave up.

What it hung in counts, the interrupt itself is no error of the run.
"""

from __future__ import annotations

import re

from dflash_watch.frame import StackFrame, StackSample, ThreadStack
from dflash_watch.window.logs import Logs

NEWEST_LINES = 80
_FRAME = re.compile(r'File "([^"\n]{1,400})"(?:, line (\d{1,9}))?, in ([^\n]{1,200})')
_KEY = re.compile(r"^\s*\^C")
INTERRUPTS = frozenset({"KeyboardInterrupt"})


def is_interrupted(logs: Logs) -> bool:
    """Did somebody end the run by hand, as the newest lines tell?"""
    if any(one.exception in INTERRUPTS for one in logs.tracebacks):
        return True
    track = logs.main()
    lines = list(track.lines)[-NEWEST_LINES:] if track is not None else []
    return any(_KEY.match(line) or line.strip() == "KeyboardInterrupt" for line in lines)


def interrupted_stacks(logs: Logs, t: float) -> tuple[StackSample, ...]:
    """The tracebacks that the interrupt left, as stacks, innermost frame first."""
    if not is_interrupted(logs):
        return ()
    threads = []
    for told in logs.tracebacks:
        newest = told.text.rpartition("Traceback (most recent call last)")[2]
        frames = [
            StackFrame(name.strip(), file, int(line or 0))
            for file, line, name in _FRAME.findall(newest)
        ]
        name = told.thread or ("MainThread" if told.rank is None else f"rank-{told.rank}")
        threads.append(ThreadStack(tid=None, name=name, frames=tuple(reversed(frames))))
    shown = tuple(thread for thread in threads if thread.frames)
    if not shown:
        return ()
    sample = StackSample(t=t, pid=0, label="interrupt", tool="traceback", threads=shown)
    return (sample,)
