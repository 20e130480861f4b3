"""One container among the processes of its host: where it is, and which number is which inside.

It is found by the run's own agent in there: the process with that number in its innermost PID
namespace that started at that very tick. All of this is world-readable; only the namespace itself,
by which init is found, needs root.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from typing import Any, Dict, List, Optional

from dflash_watch.agent import proc
from dflash_watch.agent.cgroups import ContainerGroups

MOST_REMEMBERED = 4096
"""Processes that are gone: the kernel's word about them comes later."""
MOST_TOLD = 1024
"""Numbers in one frame."""


def find_inside(
    root: str, inner_pid: int, start_ticks: int, namespace: Optional[int] = None
) -> Optional[int]:
    """The process with this number inside that started then, as counted here.

    Args:
        root: `/proc` of the host.
        inner_pid: its number in its innermost PID namespace.
        start_ticks: when it started, which is the same everywhere.
        namespace: inode of that namespace; looked at where that may be read.
    """
    alone = None
    for pid in proc.list_pids(root):
        numbers = proc.inner_numbers(f"{root}/{pid}/status")
        if not numbers or numbers[-1] != inner_pid:
            continue
        stat = proc.read_stat(root, pid)
        if stat is None or stat.start_ticks != start_ticks:
            continue
        if namespace is not None and _namespace(root, pid) not in (None, namespace):
            continue
        if len(numbers) > 1:
            return pid
        alone = pid  # of this very namespace: a container may share it
    return alone


def _namespace(root: str, pid: int) -> Optional[int]:
    """Inode of its PID namespace; None where that may not be read."""
    try:
        return os.stat(f"{root}/{pid}/ns/pid").st_ino
    except OSError:
        return None


def find_init(root: str, pid: int) -> Optional[int]:
    """Process 1 of the PID namespace that `pid` is in; None where that may not be read."""
    namespace = proc.read_link(f"{root}/{pid}/ns/pid")
    if namespace is None:
        return None
    for other in proc.list_pids(root):
        if proc.read_link(f"{root}/{other}/ns/pid") == namespace:
            numbers = proc.inner_numbers(f"{root}/{other}/status")
            if numbers and numbers[-1] == 1:
                return other
    return None


class Container:
    """A container that was found.

    Args:
        root: `/proc` of the host.
        pid: of a process inside, as counted here.
    """

    def __init__(self, root: str, pid: int) -> None:
        self._root = root
        self.groups = ContainerGroups(root, find_init(root, pid) or pid)
        self._inner: OrderedDict[int, int] = OrderedDict()
        self._living: List[int] = []
        self._told: Optional[Dict[str, int]] = None

    def refresh(self) -> None:
        """Look who is inside now; those who left are remembered."""
        before, self._living = set(self._living), self.groups.pids()
        for pid in self._living:
            if pid in before and pid in self._inner:
                continue  # who comes anew may have the number of one who left
            numbers = proc.inner_numbers(f"{self._root}/{pid}/status")
            if numbers:
                self._inner.pop(pid, None)
                self._inner[pid] = numbers[-1]
        while len(self._inner) > max(MOST_REMEMBERED, len(self._living)):
            self._inner.popitem(last=False)

    def inner(self, pid: int) -> Optional[int]:
        """Number inside of a process that is or was there; None of a stranger.

        Also of a stranger that has, by now, the number of one who left.
        """
        known = self._inner.get(pid)
        if known is not None and pid not in self._living:
            # One that is just ending is listed nowhere else.
            numbers = proc.inner_numbers(f"{self._root}/{pid}/status")
            if numbers and numbers[-1] != known:
                return None
        return known

    @property
    def living(self) -> List[int]:
        """Who is inside, as counted here."""
        return self._living

    def news(self) -> Optional[Dict[str, int]]:
        """Host's number -> number inside, of those who live; None when that is as before."""
        pairs = {str(pid): self._inner[pid] for pid in self._living if pid in self._inner}
        if len(pairs) > MOST_TOLD:
            pairs = dict(list(pairs.items())[:MOST_TOLD])
        if pairs == self._told:
            return None
        self._told = pairs
        return pairs


def locate(root: str, wanted: Dict[str, Any]) -> Optional[Container]:
    """The container that is asked for, or None when nothing of it runs on this host.

    Args:
        root: `/proc`.
        wanted: `agent_pid`, `agent_start_ticks` and `pid_namespace` of the run's agent inside.
    """
    inner_pid, ticks = wanted.get("agent_pid"), wanted.get("agent_start_ticks")
    if not isinstance(inner_pid, int) or not isinstance(ticks, int):
        return None
    namespace = wanted.get("pid_namespace")
    pid = find_inside(root, inner_pid, ticks, namespace if isinstance(namespace, int) else None)
    if pid is None or not os.path.exists(f"{root}/{pid}"):
        return None
    return Container(root, pid)
