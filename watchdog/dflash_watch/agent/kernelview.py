"""What the kernel alone says of each thread: state, where it sleeps, in which call, on what.

Needs no right to look into the process's memory; the kernel's own stack of a thread is shown to
root only.
"""

from __future__ import annotations

import os
from typing import Any, Dict, List, Optional, Tuple

from dflash_watch.agent import proc

MAX_STACKS = 64
"""Threads whose kernel stack is read, those in D first."""
MAX_KERNEL_FRAMES = 16
# name -> its number on x86_64 and on aarch64 (None: there is none), of calls that can wait.
CALLS: Dict[str, Tuple[Optional[int], Optional[int]]] = {
    "read": (0, 63), "write": (1, 64), "open": (2, None), "close": (3, 57), "stat": (4, None),
    "fstat": (5, 80), "lstat": (6, None), "poll": (7, None), "mmap": (9, 222),
    "mprotect": (10, 226), "munmap": (11, 215), "brk": (12, 214), "ioctl": (16, 29),
    "pread64": (17, 67), "pwrite64": (18, 68), "readv": (19, 65), "writev": (20, 66),
    "select": (23, None), "sched_yield": (24, 124), "msync": (26, 227), "madvise": (28, 233),
    "pause": (34, None), "nanosleep": (35, 101), "sendfile": (40, 71), "connect": (42, 203),
    "accept": (43, 202), "sendto": (44, 206), "recvfrom": (45, 207), "sendmsg": (46, 211),
    "recvmsg": (47, 212), "clone": (56, 220), "fork": (57, None), "vfork": (58, None),
    "execve": (59, 221), "exit": (60, 93), "wait4": (61, 260), "semop": (65, 193),
    "fcntl": (72, 25), "flock": (73, 32), "fsync": (74, 82), "fdatasync": (75, 83),
    "ftruncate": (77, 46), "rename": (82, None), "unlink": (87, None), "ptrace": (101, 117),
    "rt_sigtimedwait": (128, 137), "rt_sigsuspend": (130, 133), "sync": (162, 81),
    "futex": (202, 98), "io_getevents": (208, 4), "getdents64": (217, 61),
    "restart_syscall": (219, 128), "semtimedop": (220, 192), "clock_nanosleep": (230, 115),
    "exit_group": (231, 94), "epoll_wait": (232, None), "waitid": (247, 95), "openat": (257, 56),
    "newfstatat": (262, 79), "unlinkat": (263, 35), "pselect6": (270, 72), "ppoll": (271, 73),
    "splice": (275, 76), "epoll_pwait": (281, 22), "fallocate": (285, 47), "accept4": (288, 242),
    "syncfs": (306, 267), "getrandom": (318, 278), "statx": (332, 291),
    "io_uring_enter": (426, 426), "clone3": (435, 435), "epoll_pwait2": (441, 441),
    "futex_waitv": (449, 449),
}  # fmt: skip
MACHINES = ("x86_64", "aarch64")
_DESCRIPTOR_CALLS = (
    "read write close fstat ioctl pread64 pwrite64 readv writev sendfile connect accept sendto"
    " recvfrom sendmsg recvmsg fcntl flock fsync fdatasync ftruncate getdents64 fallocate accept4"
    " syncfs"
)
ON_DESCRIPTOR = frozenset(_DESCRIPTOR_CALLS.split())


def call_names(machine: str) -> Dict[str, str]:
    """Number (as text) -> name of a system call; empty for machines that are not known."""
    if machine not in MACHINES:
        return {}
    column = MACHINES.index(machine)
    return {str(pair[column]): name for name, pair in CALLS.items() if pair[column] is not None}


class KernelView:
    """Facts of one process's threads.

    Args:
        root: `/proc`.
        pid: the process.
        machine: as `uname -m` says it.
    """

    def __init__(self, root: str, pid: int, machine: str) -> None:
        self._root, self._pid = root, pid
        self._names = call_names(machine)
        self._stacks_left = MAX_STACKS

    def of(self, row: List[Any], *, with_stack: bool) -> Dict[str, Any]:
        """Fields of `frame.ThreadStack` that the kernel gives.

        Args:
            row: `frame.ThreadSample` of the thread.
            with_stack: also the kernel's stack of it, while there is room.
        """
        facts = {"state": row[2], "cpu_ticks": row[3], "wchan": row[6], "syscall": row[7]}
        call = self._names.get(str(row[7]))
        if call is not None:
            facts.update(call=call, call_on=self._object(row[0], call))
        if with_stack and row[2] != "R" and self._stacks_left > 0:
            self._stacks_left -= 1
            facts["kernel_stack"] = self.stack(row[0]) or None
        return {key: value for key, value in facts.items() if value is not None}

    def stack(self, tid: int) -> List[str]:
        """Kernel functions, innermost first; empty where only root may know."""
        path = f"{self._root}/{self._pid}/task/{tid}/stack"
        return proc.kernel_functions(path, MAX_KERNEL_FRAMES)

    def _object(self, tid: int, call: str) -> Optional[str]:
        """What the call waits on: the file behind its descriptor, the address of a futex."""
        if call != "futex" and call not in ON_DESCRIPTOR:
            return None
        words = (proc.read_text(f"{self._root}/{self._pid}/task/{tid}/syscall", 256) or "").split()
        if len(words) < 3 or self._names.get(words[0]) != call:
            return None
        if call == "futex":
            return words[1]
        number = int(words[1], 16) & 0xFFFFFFFF
        link = proc.read_link(f"{self._root}/{self._pid}/fd/{number}")
        return f"fd {number}" + (f", {link[:200]}" if link else "")


def machine() -> str:
    """Of this kernel."""
    return os.uname().machine


def kernel_view(view: KernelView, rows: List[List[Any]]) -> Dict[str, Any]:
    """Threads without frames: what the kernel alone tells, those in D first to be looked into."""
    order = sorted(rows, key=lambda row: row[2] != "D")
    facts = {row[0]: dict(view.of(row, with_stack=True), tid=row[0], name=row[1]) for row in order}
    threads = [facts[row[0]] for row in rows]
    return {"tool": "kernel", "threads": threads, "raw": lines_of(threads)}


def lines_of(threads: List[Dict[str, Any]]) -> str:
    """The facts as text, a line a thread."""
    return "\n".join(_line(thread) for thread in threads)


def _line(thread: Dict[str, Any]) -> str:
    call = thread.get("call") or "system call {}".format(thread.get("syscall") or "not known")
    on = f" ({thread['call_on']})" if thread.get("call_on") else ""
    stack = " < ".join(thread.get("kernel_stack") or ())
    return (
        "thread {} {}: state {}, in {}, ".format(
            thread["tid"], thread.get("name"), thread.get("state"), thread.get("wchan") or "?"
        )
        + f"{call}{on}"
        + (f", kernel: {stack}" if stack else "")
    )
