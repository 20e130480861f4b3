"""The agent as a guest: it gives way to the run in processor, disk and memory."""

from __future__ import annotations

import gc
import os
import resource
from typing import Iterable


def be_modest(pids: Iterable[int]) -> None:
    """Give way to the run: processor, disk, and memory when the kernel must choose.

    Called after the first look, which somebody waits for: on a busy machine it would take ten times
    as long. Children started later inherit all three.
    """
    for pid in pids:
        for step in (_be_nice, _be_idle_on_disk, _be_killed_first):
            try:
                step(pid)
            except (OSError, AttributeError, ValueError):
                continue  # not allowed here, or gone: no reason not to watch


def _be_nice(pid: int) -> None:
    # 10 leaves it 1 % of a core at load 25 on two cores: healthy runs were lost from view.
    os.setpriority(os.PRIO_PROCESS, pid, min(os.getpriority(os.PRIO_PROCESS, pid) + 5, 19))


def _be_idle_on_disk(pid: int) -> None:
    import ctypes

    number = {"x86_64": 251, "aarch64": 30}.get(os.uname().machine)
    if number is not None:
        ctypes.CDLL(None).syscall(number, 1, pid, 3 << 13)  # ioprio_set(process, idle class)


def _be_killed_first(pid: int) -> None:
    with open(f"/proc/{pid}/oom_score_adj", "w") as file:
        file.write("900")


def give_memory_back() -> None:
    """Loading code from source leaves free memory behind: hand it back to the kernel."""
    import ctypes

    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc only
    if trim is not None:
        trim(0)


def raise_descriptor_limit() -> None:
    """Descriptors of threads are held open: take as many as the hard limit gives, up to 8192."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 8192 if hard == resource.RLIM_INFINITY else min(8192, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
