"""The agent as a guest: it gives way to the run in processor, disk and memory, and has bounds."""

from __future__ import annotations

import ctypes
import gc
import os
import resource
from typing import Iterable

from dflash_watch.agent import libc

NICER = 5
"""10 leaves it 1 % of a core at load 25 on two cores: healthy runs were lost from view."""
DATA_BYTES = 1 << 30
"""Of memory for each process of the agent; it takes a fiftieth."""
CPU_SHARE, CPU_LEAST_S = 0.1, 120.0
"""Of its life in processor time for each process: far above its cost, an end to any loop."""
DESCRIPTORS = 8192


def be_modest(pids: Iterable[int]) -> None:
    """Give way to the run: processor, disk, and memory when the kernel must choose.

    Called after the first look, which somebody waits for: on a busy machine it would take ten times
    as long. Children started later inherit all of it.
    """
    for pid in pids:
        for step in (_be_nice, _wake_nobody_up, _be_idle_on_disk, _be_killed_first):
            try:
                step(pid)
            except (OSError, AttributeError, ValueError):
                continue  # not allowed here, or gone: no reason not to watch


def _be_nice(pid: int) -> None:
    os.setpriority(os.PRIO_PROCESS, pid, min(os.getpriority(os.PRIO_PROCESS, pid) + NICER, 19))


def _wake_nobody_up(pid: int) -> None:
    """Waking up, it takes no processor from who has it: it waits for the end of that turn."""
    try:
        os.sched_setscheduler(pid, os.SCHED_BATCH, os.sched_param(0))
    except OSError:
        # musl refuses where the kernel would not.
        number = {"x86_64": 144, "aarch64": 119}.get(os.uname().machine)
        call = libc.function("syscall")
        if number is not None and call is not None:
            call(number, pid, os.SCHED_BATCH, ctypes.byref(ctypes.c_int(0)))


def _be_idle_on_disk(pid: int) -> None:
    number = {"x86_64": 251, "aarch64": 30}.get(os.uname().machine)
    call = libc.function("syscall")
    if number is not None and call is not None:
        call(number, 1, pid, 3 << 13)  # ioprio_set(process, idle class)


def _be_killed_first(pid: int) -> None:
    with open(f"/proc/{pid}/oom_score_adj", "w") as file:
        file.write("1000")


def give_memory_back() -> None:
    """Loading code from source leaves free memory behind: hand it back to the kernel."""
    gc.collect()
    trim = libc.function("malloc_trim")  # glibc only
    if trim is not None:
        trim(0)


def limit_oneself(life_s: float) -> None:
    """Bounds that hold whatever goes wrong, for the agent and its children; no core files.

    Only soft limits, and never above what is allowed already. Descriptors of threads are held
    open: there it takes what it may.

    Args:
        life_s: how long the agent may live.
    """
    cpu_s = int(CPU_LEAST_S + CPU_SHARE * life_s)
    for which, wanted in (
        (resource.RLIMIT_DATA, DATA_BYTES),
        (resource.RLIMIT_CPU, cpu_s),
        (resource.RLIMIT_CORE, 0),
    ):
        soft, hard = resource.getrlimit(which)
        if soft == resource.RLIM_INFINITY or soft > wanted:
            resource.setrlimit(which, (wanted, hard))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
