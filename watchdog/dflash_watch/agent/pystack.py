"""pystack of the run's own environment: reads without stopping, where py-spy fails."""

from __future__ import annotations

import re
from typing import Any, Dict, List, Optional

from dflash_watch.agent import dumps
from dflash_watch.agent.dumps import Dump
from dflash_watch.agent.frames import Room, frame
from dflash_watch.agent.means import TOOL_S
from dflash_watch.agent.sampler import User, run_sampler

NAME = "pystack"
MAX_OUTPUT_BYTES = 8 << 20
_HEAD = re.compile(
    r"^Traceback for thread (\d+)(?: \((.*?)\))? \[(.*?)\] \(most recent call last\)"
)
_FRAME = re.compile(r'^\s+\(Python\) File "(.*)", line (\d+), in (.+)$')


def dump(command: List[str], pid: int, user: Optional[User] = None) -> Dump:
    """One dump under the kill timer.

    Args:
        command: how pystack is started.
        pid: the process, as counted here.
        user: run it as this user.
    """
    parts: List[bytes] = []

    def take(part: bytes) -> bool:
        parts.append(part)
        return sum(map(len, parts)) < MAX_OUTPUT_BYTES

    ran = run_sampler([*command, "remote", "--no-block", str(pid)], TOOL_S, take, user)
    text = b"".join(parts).decode("utf-8", "replace")
    return dumps.cut_short(ran, TOOL_S) or parse(text)


def parse(text: str) -> Dump:
    """Threads out of its text; pystack prints the outermost frame first."""
    room, threads = Room(), []  # type: Room, List[Dict[str, Any]]
    frames: Optional[List[Any]] = None
    for line in text.splitlines():
        head = _HEAD.match(line)
        if head:
            frames = [] if room.admit() else None
            if frames is not None:
                threads.append(_thread(int(head.group(1)), head.group(3), frames))
            continue
        found = _FRAME.match(line)
        if found and frames is not None:
            file, number, name = found.groups()
            frames.insert(0, frame(name, file, int(number)))
    for thread in threads:
        thread["frames"] = room.fit(thread["frames"])
    if not any(thread["frames"] for thread in threads):
        return Dump(None, f"torn reading, no frames in any of {len(threads)} threads", dumps.TORN)
    return Dump(threads, note=room.note(), raw=dumps.parts_of(text.splitlines()))


def _thread(tid: int, marks: str, frames: List[Any]) -> Dict[str, Any]:
    """Its name is the kernel's: left to the rows of `/proc`."""
    return {
        "tid": tid,
        "name": None,
        "frames": frames,
        "owns_gil": "Has the GIL" in marks,
        "waits_gil": True if "Waiting for the GIL" in marks else None,
        "in_gc": True if "arbage" in marks else None,
    }
