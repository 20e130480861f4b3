"""Kernel lines that matter to a run: kills for memory, GPU errors, lost devices, hung tasks.

Read from `/dev/kmsg` with a cursor of its own; where that is refused (most containers) it says so.
"""

from __future__ import annotations

import errno
import os
import re
from typing import List, Optional, Tuple

MATTERS = re.compile(
    r"oom[-_]kill|Out of memory|Killed process|Memory cgroup out of memory"
    r"|NVRM: |\bXid\b|fallen off the bus|nvidia-nvswitch"
    r"|AER: .*(?:uncorrect|fatal)|(?:pcieport|pciehp).*(?:link down|surprise|not present)"
    r"|nfs: server .* not responding|blocked for more than \d+ seconds"
    r"|segfault at|general protection|I/O error|Machine check|hardware error",
    re.IGNORECASE,
)
KERNEL_LOG = "/dev/kmsg"
RECENT_S = 600.0
MAX_LINES = 40
MAX_RECORDS = 20000
RECORD_BYTES = 8192


def parse(record: str) -> Optional[Tuple[float, str]]:
    """Seconds since boot and text of one kmsg record; None when it is not one."""
    head, semicolon, text = record.partition(";")
    fields = head.split(",")
    if not semicolon or len(fields) < 3 or not fields[2].isdigit():
        return None
    return int(fields[2]) / 1e6, text.partition("\n")[0]


class KernelReader:
    """New lines since the last look; on the first one those of the last ten minutes."""

    def __init__(self, path: str = KERNEL_LOG) -> None:
        self._path = path
        self._descriptor: Optional[int] = None
        self._first = True

    def read(self, now_boot_s: float) -> Tuple[Optional[List[str]], Optional[str]]:
        """Lines that matter, or None and why the kernel log cannot be read here."""
        if self._descriptor is None:
            try:
                self._descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            except OSError as error:
                return (
                    None,
                    f"not readable in this container or for this user ({error.strerror})",
                )
        lines = []
        for _ in range(MAX_RECORDS):
            try:
                record = os.read(self._descriptor, RECORD_BYTES)
            except BlockingIOError:
                break
            except OSError as error:
                if error.errno in (errno.EPIPE, errno.EINVAL):
                    continue  # overwritten meanwhile, or too long: the next one follows
                return None, f"not readable in this container ({error.strerror})"
            if not record:
                break
            parsed = parse(record.decode("utf-8", "replace"))
            if parsed is None or not MATTERS.search(parsed[1]):
                continue
            if not self._first or now_boot_s - parsed[0] <= RECENT_S:
                lines.append("[{:.6f}] {}".format(*parsed))
        self._first = False
        return lines[-MAX_LINES:], None

    def close(self) -> None:
        """Let go of the kernel log."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
