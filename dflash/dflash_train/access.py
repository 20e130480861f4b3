"""What lets a watchdog look inside without being root, and what it sees of a process."""

from __future__ import annotations

import ctypes
import faulthandler
import signal
from pathlib import Path

from dflash_events.stack_signal import STACKS_NAME

PR_SET_NAME = 15
PR_SET_PDEATHSIG = 1
PR_SET_PTRACER = 0x59616D61
PR_SET_PTRACER_ANY = ctypes.c_ulong(-1)


def allow_tracing() -> bool:
    """Let any process of this user attach (Yama's ptrace_scope 1 asks for it).

    Returns:
        False where the kernel has no such setting; tracing is then as allowed as it was.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    return bool(libc.prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0) == 0)


def name_process(name: str) -> None:
    """What `ps` and `top` show for the process (15 characters of it are kept)."""
    ctypes.CDLL(None).prctl(PR_SET_NAME, name.encode()[:15], 0, 0, 0)


def write_stacks(run_dir: Path) -> Path:
    """All stacks now, appended to `stacks.txt`; returns that file."""
    path = run_dir / STACKS_NAME
    with path.open("a", encoding="utf-8") as file:
        faulthandler.dump_traceback(file=file, all_threads=True)
    return path


def end_with_parent() -> None:
    """SIGTERM to this process when the one that started it ends, however it ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
