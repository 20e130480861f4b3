"""What a person typed that the first look shows to be wrong."""

from __future__ import annotations

from dflash_watch.errors import UsageError
from dflash_watch.frame import Frame
from dflash_watch.place import TargetChoice


def refuse_wrong_pid(target: TargetChoice, frame: Frame | None) -> None:
    """Nothing when the process asked for, or one below it, is Python.

    Only `--pid` is checked: a log or a pattern may well belong to another kind of program.

    Raises:
        UsageError: it is something else; says what.
    """
    if target.pid is None or frame is None or frame.run.state != "found" or not frame.processes:
        return
    if any(process.is_python for process in frame.processes):
        return
    root = next((one for one in frame.processes if one.pid == target.pid), frame.processes[0])
    raise UsageError(
        f"--pid: process {target.pid} is not Python and has no Python below it: {root.cmd[:80]}",
        hint="name the training process, or its log with --log",
    )
