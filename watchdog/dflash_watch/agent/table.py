"""Who is whose child, and which processes are the run's.

Membership sticks: a process once seen below the root stays in the tree when it is re-parented, so
that orphans of a dead trainer remain visible.
"""

from __future__ import annotations

import os
from typing import Dict, List, Optional, Set

from dflash_watch.agent import proc

SCRIPT_NAME = "dflash-watch"
PACKAGES = ("dflash_watch", "dflash_tui")


class ProcessTable:
    """One look at every process: `stat` lines and the child relation."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.stats: Dict[int, proc.Stat] = {}
        for pid in proc.list_pids(root):
            stat = proc.read_stat(root, pid)
            if stat is not None:
                self.stats[pid] = stat

    def children(self) -> Dict[int, List[int]]:
        """Parent -> its children."""
        children: Dict[int, List[int]] = {}
        for stat in self.stats.values():
            children.setdefault(stat.ppid, []).append(stat.pid)
        return children

    def descendants(self, pid: int) -> List[int]:
        """`pid` itself, then everything below it, parents before children."""
        children = self.children()
        found = [pid] if pid in self.stats else []
        for parent in found:
            found.extend(sorted(children.get(parent, [])))
        return found

    def ancestors(self, pid: int) -> List[int]:
        """Parents upward, nearest first, without process 1."""
        found: List[int] = []
        stat = self.stats.get(pid)
        while stat is not None and stat.ppid > 1 and stat.ppid not in found:
            found.append(stat.ppid)
            stat = self.stats.get(stat.ppid)
        return found


def is_ours(argv: List[str]) -> bool:
    """Is this a watchdog, its dashboard or an agent: never part of a run.

    Told by the program, not by any word: a run may well lie in a folder of such a name.
    """
    if any(os.path.basename(word) == SCRIPT_NAME for word in argv[:3]):
        return True
    for option, value in zip(argv, argv[1:]):
        if option == "-m" and value.partition(".")[0] in PACKAGES:
            return True
        if option == "-c" and "dflash_watch.agent" in value:
            return True
    return False


class RunTree:
    """The processes of one run, kept up from frame to frame.

    Each update lists `/proc` and asks only newcomers who their parent is.
    """

    def __init__(self, root: str, root_pid: int, start_ticks: int) -> None:
        self._root = root
        self.root_pid = root_pid
        self.start_ticks = start_ticks
        table = ProcessTable(root)
        self._seen: Set[int] = set(table.stats)
        self._outside: Set[int] = set()
        self._members: Dict[int, int] = {}
        for pid in table.descendants(root_pid):
            self._consider(table.stats[pid])

    def update(self) -> List[int]:
        """Members that are there now, the root first; zombies included."""
        present = set(proc.list_pids(self._root))
        for pid in sorted(present - self._seen):
            stat = proc.read_stat(self._root, pid)
            if stat is not None:
                self._consider(stat)
        self._seen = present
        self._outside &= present
        for pid in [pid for pid in self._members if pid not in present]:
            del self._members[pid]
        for pid, start in list(self._members.items()):
            stat = proc.read_stat(self._root, pid)
            if stat is None or stat.start_ticks != start:
                del self._members[pid]
        return sorted(self._members, key=lambda pid: (pid != self.root_pid, pid))

    def root_is_there(self) -> Optional[bool]:
        """Is the root process still the same one, zombie or not."""
        return self._members.get(self.root_pid) == self.start_ticks

    def _consider(self, stat: proc.Stat) -> None:
        if stat.pid != self.root_pid:
            if stat.ppid in self._outside or is_ours(proc.read_argv(self._root, stat.pid)):
                self._outside.add(stat.pid)
                return
            if stat.ppid not in self._members:
                return
        elif stat.start_ticks != self.start_ticks:
            return
        self._members[stat.pid] = stat.start_ticks
