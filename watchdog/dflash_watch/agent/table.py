"""Who is whose child, and which processes are the run's.

Membership sticks: a process once seen below the root stays in the tree when it is re-parented, so
that orphans of a dead trainer remain visible.
"""

from __future__ import annotations

import os
from typing import Dict, List, Optional, Set

from dflash_watch.agent import proc
from dflash_watch.agent.memory import read_argv

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
        self._admit([table.stats[pid] for pid in table.descendants(root_pid)])

    def update(self) -> List[int]:
        """Members that are there now, the root first; zombies included."""
        present = set(proc.list_pids(self._root))
        stats = (proc.read_stat(self._root, pid) for pid in present - self._seen)
        newcomers = [stat for stat in stats if stat is not None]
        self._seen = present
        self._outside &= present
        for pid, start in list(self._members.items()):
            stat = proc.read_stat(self._root, pid) if pid in present else None
            if stat is not None and stat.start_ticks == start:
                continue
            del self._members[pid]
            if stat is not None:
                newcomers.append(stat)  # the number has been given away meanwhile
        self._admit(newcomers)
        return sorted(self._members, key=lambda pid: (pid != self.root_pid, pid))

    def root_is_there(self) -> Optional[bool]:
        """Is the root process still the same one, zombie or not."""
        return self._members.get(self.root_pid) == self.start_ticks

    def _admit(self, newcomers: List[proc.Stat]) -> None:
        """Children of members, then theirs: numbers wrap, so their order tells nothing."""
        left: List[proc.Stat] = []
        while len(left) != len(newcomers):
            left, newcomers = newcomers, [stat for stat in newcomers if not self._settles(stat)]

    def _settles(self, stat: proc.Stat) -> bool:
        """Can it be said whether this one belongs to the run; then that is kept."""
        if stat.pid == self.root_pid:
            if stat.start_ticks == self.start_ticks:
                self._members[stat.pid] = stat.start_ticks
            return True
        if stat.ppid in self._outside:
            self._outside.add(stat.pid)
            return True
        if stat.ppid not in self._members:
            return False
        if is_ours(read_argv(self._root, stat.pid)):
            self._outside.add(stat.pid)
        else:
            self._members[stat.pid] = stat.start_ticks
        return True
