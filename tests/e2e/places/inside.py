"""Processes of a container as the host sees them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Inside:
    """A process of the container under both its numbers."""

    pid: int
    host_pid: int
    cmdline: tuple[str, ...]


def pid_namespace(pid: int) -> str:
    """Its name, empty where the process is gone."""
    try:
        return str(Path(f"/proc/{pid}/ns/pid").readlink())
    except OSError:  # it ended, or is a kernel thread
        return ""


def inside(host_pid: int, namespace: str) -> Inside | None:
    """The process, if it lives in that namespace."""
    if pid_namespace(host_pid) != namespace:
        return None
    try:
        status = Path(f"/proc/{host_pid}/status").read_text()
        cmdline = Path(f"/proc/{host_pid}/cmdline").read_bytes()
    except OSError:  # it ended while we looked
        return None
    numbers = re.search(r"^NSpid:\s+(.*)$", status, re.MULTILINE)
    assert numbers is not None
    words = tuple(word.decode(errors="replace") for word in cmdline.rstrip(b"\0").split(b"\0"))
    return Inside(pid=int(numbers[1].split()[-1]), host_pid=host_pid, cmdline=words)
