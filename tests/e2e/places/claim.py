"""A container number of our own, and what a killed session left behind taken away."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import psutil

FIRST_ID = 200
_OWNER = "dflash-place-owner"


def claim(lxcpath: Path) -> str:
    """The first free number from 200 on, ours from the moment its directory exists."""
    lxcpath.mkdir(parents=True, exist_ok=True)
    for left in lxcpath.glob(f"*/{_OWNER}"):
        _sweep(lxcpath, left)
    for number in range(FIRST_ID, 1000):
        try:
            (lxcpath / str(number)).mkdir()
        except FileExistsError:
            continue
        (lxcpath / str(number) / _OWNER).write_text(str(os.getpid()))
        return str(number)
    raise RuntimeError(f"no free container number in {lxcpath}")


def _sweep(lxcpath: Path, left: Path) -> None:
    """Take away what a test session left that was killed."""
    text = left.read_text() if left.exists() else ""
    if not text or psutil.pid_exists(int(text)):
        return
    for verb in (["lxc-unfreeze"], ["lxc-stop", "-k"]):
        subprocess.run(
            [*verb, "-P", str(lxcpath), "-n", left.parent.name],
            capture_output=True,
            timeout=90,
            check=False,
        )
    shutil.rmtree(left.parent, ignore_errors=True)
