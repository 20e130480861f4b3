"""The operator's own py-spy, for machines that have none: one static binary, kept in memory."""

from __future__ import annotations

import platform
import shutil
import sys
import sysconfig
from pathlib import Path

NAME = "py-spy"


def find_tool() -> Path | None:
    """Beside this Python, where this environment puts programs, else on PATH."""
    for folder in (Path(sys.executable).parent, Path(sysconfig.get_path("scripts"))):
        if (folder / NAME).is_file():
            return folder / NAME
    found = shutil.which(NAME)
    return Path(found) if found else None


def read_tool(machine: str) -> bytes | None:
    """The binary, if there is one and it runs on `machine` (as `uname -m` says it)."""
    path = find_tool()
    if path is None or machine != platform.machine() or sys.platform != "linux":
        return None
    data = path.read_bytes()
    return data if data.startswith(b"\x7fELF") else None
