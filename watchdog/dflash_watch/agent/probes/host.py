"""The machine or container around the run: load, memory, cgroup limits and kills, room on disks."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Optional, Tuple

from dflash_watch.agent import proc
from dflash_watch.agent.child import Child
from dflash_watch.agent.mounts import Mounts
from dflash_watch.agent.proc import read_keyed, read_number

DEADLINE_S = 4.0
REWRITTEN = ("meminfo", "stat", "loadavg", "uptime")
"""Files of `/proc` that lxcfs lays its own over: a FUSE server, which can hang."""


class HostReader:
    """Host samples; remembers the last CPU counters for the busy share.

    Args:
        root: `/proc`.
        cgroup_root: `/sys/fs/cgroup`.
    """

    def __init__(self, root: str, cgroup_root: str = "/sys/fs/cgroup") -> None:
        self._root, self._cgroup_root = root, cgroup_root
        self._cpu: Optional[Tuple[int, int]] = None
        self._groups: Tuple[Optional[int], Dict[str, str]] = (None, {})
        self._hostname = os.uname().nodename

    def read(self, pid: Optional[int]) -> Dict[str, Any]:
        """`frame.HostSample` without disks.

        Args:
            pid: whose cgroup counts; None: the agent's own.
        """
        memory = parse_meminfo(proc.read_text(self._root + "/meminfo") or "")
        load = (proc.read_text(self._root + "/loadavg", 128) or "").split()
        sample: Dict[str, Any] = {
            "hostname": self._hostname,
            "cpus": os.cpu_count(),
            "load1": float(load[0]) if load else None,
            "cpu_busy_ratio": self._busy_ratio(),
            "uptime_s": parse_uptime(proc.read_text(self._root + "/uptime", 128) or ""),
            "memory_total_bytes": memory.get("MemTotal"),
            "memory_available_bytes": memory.get("MemAvailable"),
        }
        sample.update(read_cgroup(self._cgroup_root, self._groups_of(pid or os.getpid())))
        sample["machine_oom_kills"] = parse_vmstat_oom(proc.read_text(self._root + "/vmstat") or "")
        return {key: value for key, value in sample.items() if value is not None}

    def _groups_of(self, pid: int) -> Dict[str, str]:
        """Its cgroups, those it was in when it is gone: their counters say why it went."""
        text = proc.read_text(f"{self._root}/{pid}/cgroup", 8192)
        if text or self._groups[0] != pid:
            self._groups = (pid, parse_cgroup(text or ""))
        return self._groups[1]

    def _busy_ratio(self) -> Optional[float]:
        counters = parse_cpu(proc.read_text(self._root + "/stat", proc.SHORT) or "")
        before, self._cpu = self._cpu, counters
        if before is None or counters is None or counters[1] <= before[1]:
            return None
        return round(min(1.0, max(0.0, (counters[0] - before[0]) / (counters[1] - before[1]))), 3)


class HostSource:
    """The host sample: read here, or in a child where a server stands behind these files.

    Args:
        root: `/proc`.
    """

    def __init__(self, root: str) -> None:
        self._root, self._reader, self._mounts = root, HostReader(root), Mounts(root)
        self.child: Optional[Child] = None
        self._sample: Dict[str, Any] = {}

    def ask(self, pid: Optional[int], now_s: float) -> None:
        """Begin a look; ends it at once where nothing can hang."""
        if self.child is None and not self._can_hang(now_s):
            self._sample = self._reader.read(pid)
            return
        self._sample = {}
        if self.child is None:
            self.child = Child("lxcfs", self._serve, DEADLINE_S)
        self.child.ask({"pid": pid}, now_s)

    def collect(self, now_s: float, wait_s: float, gaps: List[Dict[str, Any]]) -> Dict[str, Any]:
        """`frame.HostSample` without disks; empty when it did not come, which a gap explains."""
        if self.child is None:
            return self._sample
        answer = self.child.collect(now_s, wait_s)
        problem = self.child.gap(now_s)
        if answer is not None and "error" in answer:
            problem, answer = {"reason": answer["error"]}, None
        if problem is not None:
            gaps.append(dict(problem, source="host"))
        return answer or {}

    def close(self) -> None:
        """End the child."""
        if self.child is not None:
            self.child.close()

    def _can_hang(self, now_s: float) -> bool:
        kinds = (self._mounts.kind(f"{self._root}/{name}", now_s) for name in REWRITTEN)
        return any(kind.startswith("fuse") for kind in kinds)

    def _serve(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """Runs in the child only."""
        return self._reader.read(request.get("pid"))


def parse_cpu(text: str) -> Optional[Tuple[int, int]]:
    """Busy and total ticks of all CPUs from `/proc/stat`."""
    line = text.partition("\n")[0].split()
    if len(line) < 6 or line[0] != "cpu" or not all(word.isdigit() for word in line[1:]):
        return None
    ticks = [int(word) for word in line[1:9]]
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)


def parse_uptime(text: str) -> Optional[float]:
    """What `/proc/uptime` says; lxcfs rewrites it, so no age is built on it, but `ps` does."""
    try:
        return float(text.split(maxsplit=1)[0])
    except (IndexError, ValueError):
        return None


def parse_meminfo(text: str) -> Dict[str, int]:
    """`/proc/meminfo` in bytes."""
    values = {}
    for key, value in proc.parse_pairs(text).items():
        words = value.split()
        if words and words[0].isdigit():
            values[key] = int(words[0]) * (1024 if len(words) > 1 else 1)
    return values


def parse_vmstat_oom(text: str) -> Optional[int]:
    """`oom_kill` of the whole machine."""
    for line in text.splitlines():
        if line.startswith("oom_kill "):
            return int(line.split()[1])
    return None


def parse_cgroup(text: str) -> Dict[str, str]:
    """Controller -> path of `/proc/PID/cgroup`; the unified hierarchy is `""`."""
    paths = {}
    for line in text.splitlines():
        words = line.split(":", 2)
        if len(words) == 3:
            for controller in words[1].split(","):
                paths[controller] = words[2]
    return paths


def read_cgroup(cgroup_root: str, paths: Dict[str, str]) -> Dict[str, Any]:
    """Memory use, limit, kills and CPU throttling of these cgroups, version 2 or 1."""
    values: Dict[str, Any] = {}
    unified = _below(cgroup_root, paths.get("", "/"), "memory.current")
    if unified is not None:
        values["cgroup_memory_bytes"] = read_number(unified, "memory.current")
        values["cgroup_memory_limit_bytes"] = read_number(unified, "memory.max")
        values["oom_kills"] = read_keyed(unified, "memory.events", "oom_kill")
        throttled = read_keyed(unified, "cpu.stat", "throttled_usec")
        values["throttled_s"] = None if throttled is None else throttled / 1e6
        return values
    memory = _below(cgroup_root + "/memory", paths.get("memory", "/"), "memory.usage_in_bytes")
    if memory is not None:
        limit = read_number(memory, "memory.limit_in_bytes")
        values["cgroup_memory_bytes"] = read_number(memory, "memory.usage_in_bytes")
        values["cgroup_memory_limit_bytes"] = (
            limit if limit is not None and limit < 1 << 60 else None
        )
        values["oom_kills"] = read_keyed(memory, "memory.oom_control", "oom_kill")
    cpu = _below(cgroup_root + "/cpu", paths.get("cpu", "/"), "cpu.stat")
    throttled = read_keyed(cpu, "cpu.stat", "throttled_time") if cpu else None
    values["throttled_s"] = None if throttled is None else throttled / 1e9
    return values


def _below(base: str, path: str, name: str) -> Optional[str]:
    """The cgroup's directory: by its path, else the root (inside a cgroup namespace)."""
    for directory in (base + path.rstrip("/"), base):
        if proc.read_bytes(directory + "/" + name, 64) is not None:
            return directory
    return None


def read_disks(places: List[Tuple[str, str]]) -> List[Dict[str, Any]]:
    """`frame.Disk`s of (path, what); may block on a dead mount. Missing places are left out."""
    disks = []
    for path, what in places:
        try:
            room = os.statvfs(path)
        except OSError:
            continue
        disks.append(
            {
                "path": path,
                "what": what,
                "free_bytes": room.f_bavail * room.f_frsize,
                "total_bytes": room.f_blocks * room.f_frsize,
                "free_inodes": room.f_favail if room.f_files else None,
            }
        )
    return disks
