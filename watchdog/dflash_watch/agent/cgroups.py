"""Cgroups of a container as its host sees them, version 1, 2 and both at once.

Where they lie is read: from `/proc/PID/cgroup` of a process inside and from the mounts of this
machine. A path is never built from a container's name: a second container of one name, nesting and
other versions of LXC change it.
"""

from __future__ import annotations

import os
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

from dflash_watch.agent import proc
from dflash_watch.agent.probes.host import parse_cgroup
from dflash_watch.agent.proc import read_keyed, read_number

UNIFIED = ""
NO_LIMIT_BYTES = 1 << 60
INNER = ("init.scope", "ns", ".lxc")
"""Last names of the group of a container's init below the one that holds the limits."""
LISTING = (UNIFIED, "pids", "freezer", "memory", "name=systemd")
"""Hierarchies, in the order in which they are asked for the processes of a container."""
MOST_GROUPS = 512
"""Below one container that are looked into."""


class Mount(NamedTuple):
    """Where a hierarchy is mounted, and which part of it."""

    point: str
    root: str


def read_mounts(root: str) -> Dict[str, Mount]:
    """Controller -> its mount; the unified hierarchy is `""`."""
    mounts: Dict[str, Mount] = {}
    for line in (proc.read_text(root + "/self/mountinfo", 1 << 20) or "").splitlines():
        head, _, tail = line.partition(" - ")
        fields, kinds = head.split(), tail.split()
        if len(fields) < 5 or len(kinds) < 3:
            continue
        mount = Mount(fields[4], fields[3].rstrip("/"))
        if kinds[0] == "cgroup2":
            mounts.setdefault(UNIFIED, mount)
        elif kinds[0] == "cgroup":
            for option in kinds[2].split(","):
                mounts.setdefault(option, mount)
    return mounts


def chain(mounts: Dict[str, Mount], groups: Dict[str, str], controller: str) -> List[str]:
    """Directories of a process's group, innermost first, without the hierarchy's own root."""
    mount, path = mounts.get(controller), groups.get(controller)
    if mount is None or path is None or not path.startswith(mount.root):
        return []
    inner = path[len(mount.root) :].strip("/")
    if ".." in inner.split("/"):  # seen from inside another cgroup namespace
        return []
    names = inner.split("/") if inner else []
    return [mount.point + "/" + "/".join(names[:end]) for end in range(len(names), 0, -1)]


def container_level(directories: List[str]) -> List[str]:
    """The chain from the container's own group on, its init's place below that left out."""
    while len(directories) > 1 and os.path.basename(directories[0]) in INNER:
        directories = directories[1:]
    return directories


class ContainerGroups:
    """The groups of one container.

    Args:
        root: `/proc`.
        pid: of a process inside, best its init, as counted here.
    """

    def __init__(self, root: str, pid: int) -> None:
        mounts = read_mounts(root)
        groups = parse_cgroup(proc.read_text(f"{root}/{pid}/cgroup", 8192) or "")
        self._unified = chain(mounts, groups, UNIFIED)
        self._chains = {name: chain(mounts, groups, name) for name in mounts if name}
        self._listed = next(
            (
                found
                for found in map(self._level, LISTING)
                if found and os.path.exists(found[0] + "/cgroup.procs")
            ),
            [],
        )
        self.path = max(groups.values(), key=len, default="").rstrip("/") or None
        """Of the group, for people."""
        self.names = self._names(groups)

    @property
    def is_there(self) -> bool:
        """There are groups, and they have not been taken away."""
        return bool(self._listed) and os.path.isdir(self._listed[0])

    def pids(self) -> List[int]:
        """Every process inside, nested containers included, as counted here."""
        found: List[int] = []
        for directory in _below(self._listed[0] if self._listed else None):
            text = proc.read_text(directory + "/cgroup.procs", 1 << 20) or ""
            found += [int(word) for word in text.split() if word.isdigit() and word != "0"]
        return found

    def holds(self, path: str) -> bool:
        """Is this group, as kernel lines name it, the container's or below it?"""
        return any(path == name or path.startswith(name + "/") for name in self.names)

    def is_frozen(self) -> Optional[bool]:
        """By this group's freezer or one above; None where nobody tells."""
        freezer = self._chains.get("freezer") or []
        if freezer:
            state = (proc.read_text(freezer[0] + "/freezer.state", 64) or "").strip()
            if state == "FROZEN":
                return True
            if not self._unified and state:
                return False
        events = [read_keyed(directory, "cgroup.events", "frozen") for directory in self._unified]
        known = [value for value in events if value is not None]
        if known:
            return any(known)
        return False if freezer else None

    def read(self) -> Dict[str, Any]:
        """Keys of `frame.ContainerSample` that the groups tell."""
        values: Dict[str, Any] = {"cgroup": self.path, "frozen": self.is_frozen()}
        values.update(self._memory())
        values["throttled_s"] = self._throttled_s()
        pids = self._level(UNIFIED) or self._level("pids")
        if not (pids and read_number(pids[0], "pids.current") is not None):
            pids = self._level("pids")
        if pids:
            values["tasks"] = read_number(pids[0], "pids.current")
            values["tasks_limit"] = read_number(pids[0], "pids.max")
        for what in ("cpu", "memory", "io"):
            values[what + "_stall_ratio"] = self._pressure(what)
        return {key: value for key, value in values.items() if value is not None}

    def _level(self, controller: str) -> List[str]:
        if controller == UNIFIED:
            return container_level(self._unified)
        return container_level(self._chains.get(controller) or [])

    def _names(self, groups: Dict[str, str]) -> List[str]:
        """Of the container's own group in each hierarchy, innermost places left out."""
        names = set()
        for path in groups.values():
            parts = path.strip("/").split("/")
            while len(parts) > 1 and parts[-1] in INNER:
                parts = parts[:-1]
            if parts != [""]:
                names.add("/" + "/".join(parts))
        return sorted(names)

    def _memory(self) -> Dict[str, Any]:
        unified = [
            one for one in self._level(UNIFIED) if read_number(one, "memory.current") is not None
        ]
        if unified:
            values = _tightest(unified, "memory.max", "memory.current")
            values["memory_high_bytes"] = read_number(unified[0], "memory.high")
            values["oom_kills"] = read_keyed(unified[0], "memory.events", "oom_kill")
            return values
        old = self._level("memory")
        if not old:
            return {}
        values = _tightest(old, "memory.limit_in_bytes", "memory.usage_in_bytes")
        counts = [read_keyed(one, "memory.oom_control", "oom_kill") for one in _below(old[0])]
        known = [count for count in counts if count is not None]
        values["oom_kills"] = sum(known) if known else None
        return values

    def _throttled_s(self) -> Optional[float]:
        """Of the group that was held back longest: a limit may stand at any level."""
        new = [read_keyed(one, "cpu.stat", "throttled_usec") for one in self._unified]
        old = [
            read_keyed(one, "cpu.stat", "throttled_time") for one in self._chains.get("cpu") or []
        ]
        found = [value / 1e6 for value in new if value is not None]
        found += [value / 1e9 for value in old if value is not None]
        return round(max(found), 3) if found else None

    def _pressure(self, what: str) -> Optional[float]:
        """Share of the last ten seconds in which some process waited for it."""
        level = self._level(UNIFIED)
        text = proc.read_text(f"{level[0]}/{what}.pressure", 512) if level else None
        for line in (text or "").splitlines():
            words = line.split()
            if len(words) > 1 and words[0] == "some" and words[1].startswith("avg10="):
                try:
                    return round(float(words[1][6:]) / 100, 4)
                except ValueError:
                    return None
        return None


def _below(directory: Optional[str]) -> Iterator[str]:
    """The group and the groups in it."""
    waiting, seen = [directory] if directory else [], 0
    while waiting and seen < MOST_GROUPS:
        here = waiting.pop()
        seen += 1
        yield here
        try:
            with os.scandir(here) as entries:
                waiting += [one.path for one in entries if one.is_dir(follow_symlinks=False)]
        except OSError:
            continue


def _tightest(directories: List[str], limit: str, used: str) -> Dict[str, Any]:
    """Use and limit where the limit is lowest; the group's own use where there is none."""
    limits: List[Tuple[int, str]] = []
    for directory in directories:
        value = read_number(directory, limit)
        if value is not None and value < NO_LIMIT_BYTES:
            limits.append((value, directory))
    lowest, where = min(limits) if limits else (None, directories[0])
    return {"memory_bytes": read_number(where, used), "memory_limit_bytes": lowest}
