"""The operator's own py-spy, for machines that have none: one static binary, kept in memory."""

from __future__ import annotations

import contextlib
import platform
import shutil
import sys
import sysconfig
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

NAME = "py-spy"


def find_tool() -> Path | None:
    """Where some way of installing puts programs: venv, user, `pip --target`; else on PATH."""
    for folder in _folders():
        if (folder / NAME).is_file():
            return folder / NAME
    found = shutil.which(NAME)
    return Path(found) if found else None


def _folders() -> Iterator[Path]:
    yield Path(sys.executable).parent
    yield Path(sysconfig.get_path("scripts"))
    yield Path(sysconfig.get_path("scripts", sysconfig.get_preferred_scheme("user")))
    with contextlib.suppress(PackageNotFoundError):
        yield Path(str(distribution(NAME).locate_file("bin")))


def read_tool(machine: str) -> bytes | None:
    """The binary, if there is one and it runs on `machine` (as `uname -m` says it)."""
    path = find_tool()
    if path is None or machine != platform.machine() or sys.platform != "linux":
        return None
    data = path.read_bytes()
    return data if data.startswith(b"\x7fELF") else None
