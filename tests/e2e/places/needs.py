"""What a place needs of this machine: skip with a reason at home, fail in CI."""

from __future__ import annotations

import os
import shutil
import sys
from typing import NoReturn

import pytest


def give_up(reason: str) -> NoReturn:
    """This machine cannot do it: skip with the reason, or fail where CI promised that it can."""
    if os.environ.get("CI", "").lower() in ("1", "true", "yes"):
        pytest.fail(f"CI must be able to run this: {reason}")
    pytest.skip(reason)


def require_root() -> None:
    """Root on Linux."""
    if sys.platform != "linux":
        give_up("Linux only")
    if os.geteuid() != 0:
        give_up("root only: it starts a daemon and a container")


def require_programs(*names: str, packages: str) -> None:
    """Programs found on PATH or in the sbin directories."""
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
    missing = [name for name in names if shutil.which(name, path=path) is None]
    if missing:
        give_up(f"{', '.join(missing)} not found: apt-get install {packages}")
