"""One sample a process: state, ticks, switches, I/O, memory, descriptors.

Ages come from CLOCK_BOOTTIME; CPU only as ticks, to be compared by the watcher.
"""

from __future__ import annotations

import os
from typing import Any, Dict, Optional

from dflash_watch.agent import proc
from dflash_watch.agent.mask import command_text
from dflash_watch.agent.memory import read_argv, read_environment

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
YOUNG_S = 3.0
RANK_NAMES = (b"RANK", b"SLURM_PROCID", b"OMPI_COMM_WORLD_RANK", b"PMI_RANK")
"""torchrun's, then those of other launchers."""
FDS_NEAR_LIMIT = 0.7
"""Share of its limit from which a process may have raised it: then it is read again."""


class ProcessFacts:
    """What does not change while a process lives; read once."""

    def __init__(self, root: str, stat: proc.Stat) -> None:
        self.start_ticks, self.comm = stat.start_ticks, stat.comm
        argv = read_argv(root, stat.pid)
        self.argv = argv
        self.exe = proc.read_link(f"{root}/{stat.pid}/exe")
        self.is_python = proc.is_python(self.exe, stat.comm, argv)
        self.cmd = command_text(argv) if argv else f"[{stat.comm}]"
        self.rank = read_rank(root, stat.pid) if self.is_python else None
        self.fd_limit = read_fd_limit(root, stat.pid)


class ProcessReader:
    """Samples of the run's processes, with the constant part kept between frames."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._facts: Dict[int, ProcessFacts] = {}

    def facts(self, stat: proc.Stat, now_boot_s: float) -> ProcessFacts:
        """Command line, binary: from memory while it is the same process.

        A process that has just been forked still shows its parent's words until it calls exec: a
        young one is asked again, and one whose name has changed.
        """
        known = self._facts.get(stat.pid)
        is_same = known is not None and (known.start_ticks, known.comm) == (
            stat.start_ticks,
            stat.comm,
        )
        is_young = now_boot_s - stat.start_ticks / proc.TICKS_PER_S < YOUNG_S
        if known is None or not is_same or is_young:
            known = self._facts[stat.pid] = ProcessFacts(self._root, stat)
        return known

    def is_python(self, pid: int) -> bool:
        """Was this process seen to be a Python."""
        known = self._facts.get(pid)
        return known is not None and known.is_python

    def read(self, pid: int, now_boot_s: float) -> Optional[Dict[str, Any]]:
        """The sample of one process as `frame.ProcessSample`; None when it is gone."""
        stat = proc.read_stat(self._root, pid)
        if stat is None:
            self._facts.pop(pid, None)
            return None
        facts = self.facts(stat, now_boot_s)
        base = f"{self._root}/{pid}/"
        sample = {
            "pid": pid,
            "ppid": stat.ppid,
            "start_ticks": stat.start_ticks,
            "age_s": proc.age_s(stat.start_ticks, now_boot_s),
            "state": stat.state,
            "comm": stat.comm,
            "cmd": facts.cmd,
            "is_python": facts.is_python,
            "cpu_ticks": stat.cpu_ticks,
            "rss_bytes": stat.rss_pages * PAGE_BYTES,
            "num_threads": stat.num_threads,
            "rank": facts.rank,
            "exit_code": stat.exit_code if stat.state in "ZX" else None,
        }
        sample.update(parse_status(proc.read_text(base + "status", 8192) or ""))
        sample.update(parse_io(proc.read_text(base + "io", proc.SHORT) or ""))
        sample["wchan"] = parse_wchan(proc.read_text(base + "wchan", 256))
        sample["syscall"] = parse_syscall(proc.read_text(base + "syscall", 256))
        fds = proc.list_fds(self._root, pid)
        if fds is not None:
            sample["num_fds"] = len(fds)
            if facts.fd_limit is not None and len(fds) > FDS_NEAR_LIMIT * facts.fd_limit:
                facts.fd_limit = read_fd_limit(self._root, pid)
        sample["fd_limit"] = facts.fd_limit
        return {key: value for key, value in sample.items() if value is not None or key == "age_s"}


def read_rank(root: str, pid: int) -> Optional[int]:
    """Its global rank, from the variables that launchers set; None when there is none.

    Only this number is kept: the environment itself never leaves the machine.
    """
    environment = read_environment(root, pid) or b""
    values = {}
    for entry in environment.split(b"\0"):
        name, _, value = entry.partition(b"=")
        if name in RANK_NAMES and value.isdigit() and len(value) < 9:
            values[name] = int(value)
    return next((values[name] for name in RANK_NAMES if name in values), None)


def read_fd_limit(root: str, pid: int) -> Optional[int]:
    """Soft limit of open descriptors; None when unlimited or refused."""
    for line in (proc.read_text(f"{root}/{pid}/limits", 4096) or "").splitlines():
        if line.startswith("Max open files"):
            word = line[len("Max open files") :].split(None, 1)[:1]
            return int(word[0]) if word and word[0].isdigit() else None
    return None


def parse_status(text: str) -> Dict[str, Any]:
    """Tracer, own memory and context switches (those of the main thread) of `/proc/PID/status`."""
    values: Dict[str, Any] = {}
    for line in text.splitlines():
        if line.startswith("TracerPid:"):
            values["tracer_pid"] = int(line[10:])
        elif line.startswith("RssAnon:"):
            words = line.split()
            if len(words) > 1 and words[1].isdigit():
                values["anon_bytes"] = int(words[1]) * 1024
        elif line.startswith("voluntary_ctxt_switches:"):
            values["voluntary_switches"] = int(line[24:])
        elif line.startswith("nonvoluntary_ctxt_switches:"):
            values["involuntary_switches"] = int(line[27:])
    return values


def parse_io(text: str) -> Dict[str, Any]:
    """Counters of `/proc/PID/io`; empty when not allowed."""
    names = ("read_bytes", "write_bytes", "rchar", "wchar", "syscr", "syscw")
    pairs = proc.parse_pairs(text)
    return {name: int(pairs[name]) for name in names if pairs.get(name, "").isdigit()}


def parse_wchan(text: Optional[str]) -> Optional[str]:
    """Kernel function it sleeps in; None when running, hidden, or refused."""
    text = (text or "").strip()
    return text if text not in ("", "0") else None


def parse_syscall(text: Optional[str]) -> Optional[str]:
    """Number of the system call as text, or `running`; None when refused."""
    word = (text or "").split(None, 1)
    return word[0] if word else None
