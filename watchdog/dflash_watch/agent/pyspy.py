"""py-spy: reads a process's memory without stopping it, unless native frames were asked for."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional

from dflash_watch.agent import dumps
from dflash_watch.agent.dumps import Dump
from dflash_watch.agent.frames import Room, frame
from dflash_watch.agent.jsonitems import JsonItems
from dflash_watch.agent.means import NATIVE_S, TOOL_S
from dflash_watch.agent.sampler import User, run_sampler

NAME = "py-spy"
MAX_OUTPUT_BYTES = 96 << 20


class Reading:
    """Threads out of `py-spy dump --json` while it arrives."""

    def __init__(self) -> None:
        self._room, self._items = Room(), JsonItems(self._keep)
        self._threads: List[Dict[str, Any]] = []
        self._taken = 0
        self._problem: Optional[str] = None

    def take(self, part: bytes) -> bool:
        """More of it; False: nothing more is wanted."""
        self._taken += len(part)
        self._guard(lambda: self._items.feed(part))
        return self._problem is None and self._taken < MAX_OUTPUT_BYTES

    def end(self) -> Dump:
        """What it was. A torn reading is an error that is worth another try, a cut one is not."""
        self._guard(self._items.finish)
        if self._problem is not None:
            return Dump(None, f"its answer is no JSON: {self._problem}", dumps.TORN)
        count = len(self._threads)
        if not any(thread["frames"] for thread in self._threads):
            said = f"torn reading, no frames in any of {count} threads" if count else "no threads"
            return Dump(None, said, dumps.TORN)
        cut = None if self._items.is_whole else f"cut after {count} threads"
        return Dump(self._threads, note="; ".join(filter(None, [self._room.note(), cut])) or None)

    def _guard(self, step: Callable[[], None]) -> None:
        if self._problem is not None:
            return
        try:
            step()
        except ValueError as error:
            self._problem = str(error)

    def _keep(self, item: Dict[str, Any]) -> None:
        if not self._room.admit():
            return
        told = item.get("frames")
        frames = [
            frame(one.get("name"), one.get("filename"), one.get("line"))
            for one in (told if isinstance(told, list) else ())
            if isinstance(one, dict)
        ]
        self._threads.append(
            {
                "tid": _of(int, item.get("os_thread_id")),
                "ident": _of(int, item.get("thread_id")),
                "name": _of(str, item.get("thread_name")),
                "frames": self._room.fit(frames),
                "active": _of(bool, item.get("active")),
                "owns_gil": _of(bool, item.get("owns_gil")),
            }
        )


def _of(kind: type, value: Any) -> Any:
    """The value, if it is of this very kind."""
    return value if type(value) is kind else None


def parse(text: str) -> Dump:
    """Threads out of a whole answer."""
    reading = Reading()
    reading.take(text.encode("utf-8", "replace"))
    return reading.end()


def dump(path: str, pid: int, *, native: bool = False, user: Optional[User] = None) -> Dump:
    """One dump under the kill timer.

    Args:
        path: of py-spy.
        pid: the process, as counted here.
        native: with C frames. Stops every thread of the process meanwhile: py-spy knows no other
            way. Never for a process with a thread in state D.
        user: run it as this user.
    """
    mode = "--native" if native else "--nonblocking"
    command = [path, "dump", "--json", mode, "--full-filenames", "--pid", str(pid)]
    reading, limit_s = Reading(), NATIVE_S if native else TOOL_S
    ran = run_sampler(command, limit_s, reading.take, user)
    return dumps.cut_short(ran, limit_s) or reading.end()
