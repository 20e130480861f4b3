"""In which number space a PID from the driver counts: checked against `/proc`, never assumed.

Older drivers give the host's numbers everywhere, newer ones those of the caller's PID namespace.
"""

from __future__ import annotations

import os
import re
from typing import Dict, List

from dflash_watch.agent import proc

INITIAL_NAMESPACE = 0xEFFFFFFC
"""Inode of the host's own PID namespace, fixed in the kernel."""


class PidSpace:
    """Remembers verdicts while a process lives.

    Args:
        root: `/proc`.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._known: Dict[int, str] = {}
        try:
            self._on_host = os.stat(root + "/self/ns/pid").st_ino == INITIAL_NAMESPACE
        except OSError:
            self._on_host = False

    def of(self, pid: int, run_pids: List[int]) -> str:
        """`container`: it is that process here; `host`: the same, and here is the host; `unknown`.

        Args:
            pid: as the driver says.
            run_pids: processes of the run as seen here.
        """
        here = "host" if self._on_host else "container"
        if pid in run_pids or self._uses_gpu(pid):
            return here
        return "unknown"

    def _uses_gpu(self, pid: int) -> bool:
        stat = proc.read_stat(self._root, pid)
        if stat is None:
            return False
        for fd in proc.list_fds(self._root, pid) or []:
            link = proc.read_link(f"{self._root}/{pid}/fd/{fd}") or ""
            if re.match(r"/dev/nvidia(?:\d|ctl|-uvm)", link):
                return True
        return False
