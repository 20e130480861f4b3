"""Whom a kernel line is about: the host's log names every process by the host's number."""

from __future__ import annotations

import os
import re
from collections import OrderedDict
from typing import Any, Dict, List, Optional, Tuple

from dflash_watch.agent.container import Container

_PID = re.compile(
    r"[Kk]illed process (\d+)|\bpid[= ]'?(\d+)|\btask [^\n]*?:(\d+) (?:blocked|is blocked)"
    r"|^[^\s\[\]]{1,16}\[(\d+)\]: segfault"
)
_GROUP = re.compile(r"task_memcg=(/[^,\s]*)")
_STAMP = re.compile(r"\[\s*\d+\.\d+\] ")
MOST_REMEMBERED = 256


class KernelWho:
    """Remembers what one line told for those that follow it.

    Args:
        root: `/proc` of the host.
        container: whose processes are meant.
    """

    def __init__(self, root: str, container: Container) -> None:
        self._root, self._container = root, container
        self._known: OrderedDict[int, str] = OrderedDict()

    def mark(self, lines: List[str]) -> List[Dict[str, Any]]:
        """`frame.KernelLine`s of these lines."""
        return [self._mark(line) for line in lines]

    def _mark(self, line: str) -> Dict[str, Any]:
        pid, about = self._about(_STAMP.sub("", line, count=1))
        marked: Dict[str, Any] = {"text": line, "about": about}
        inner = self._container.inner(pid) if pid is not None else None
        if inner is not None and about == "container":
            marked["pid"] = inner
        return marked

    def _about(self, text: str) -> Tuple[Optional[int], str]:
        found = _PID.search(text)
        pid = int(next(word for word in found.groups() if word)) if found else None
        group = _GROUP.search(text)
        if group is not None:
            about = "container" if self._container.groups.holds(group.group(1)) else "other"
            if pid is not None:
                self._remember(pid, about)
            return pid, about
        if pid is None:
            return None, "machine"
        if pid in self._known:
            return pid, self._known[pid]
        if self._container.inner(pid) is not None:
            return pid, "container"
        return pid, "other" if os.path.exists(f"{self._root}/{pid}") else "unknown"

    def _remember(self, pid: int, about: str) -> None:
        self._known[pid] = about
        while len(self._known) > MOST_REMEMBERED:
            self._known.popitem(last=False)
