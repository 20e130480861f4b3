"""The operator's own py-spy, for machines that have none: one static binary, kept in memory."""

from __future__ import annotations

import contextlib
import shutil
import sys
import sysconfig
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Literal

NAME = "py-spy"
_ELF_HEAD, _BIG_ENDIAN = 20, 2
_MACHINES = {3: "i686", 21: "ppc64le", 22: "s390x", 40: "armv7l", 62: "x86_64", 183: "aarch64"}
"""`e_machine` of elf(5)."""


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


def read_tool(machine: str) -> bytes | str:
    """The binary, if it runs on `machine` (as `uname -m` says it), else why there is none."""
    path = find_tool()
    if path is None:
        return "the watcher has none either: pip install py-spy beside dflash-watch"
    try:
        data = path.read_bytes()
    except OSError as error:
        return f"the watcher's {path} cannot be read: {error.strerror}"
    built_for = built_for_machine(data)
    if built_for is None:
        return f"the watcher's {path} is no Linux program"
    if built_for != machine:
        return f"the watcher's py-spy is for {built_for}, that machine is {machine}"
    return data


def built_for_machine(data: bytes) -> str | None:
    """The machine an ELF binary is for, as `uname -m` says it; None for what is none.

    The file decides, not this machine: the watcher may be a laptop of another kind.
    """
    if data[:4] != b"\x7fELF" or len(data) < _ELF_HEAD:
        return None
    order: Literal["little", "big"] = "big" if data[5] == _BIG_ENDIAN else "little"
    number = int.from_bytes(data[18:20], order)
    return _MACHINES.get(number, f"machine type {number}")
