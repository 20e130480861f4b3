"""A Debian 12 root, built once per machine; the lower layer of every container."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from e2e.places.needs import give_up

SUITE = "bookworm"  # from debootstrap's own mirror of it
PACKAGES = "python3,procps,tmux"
RECIPE = 2
"""Counted up when what is built below changes."""

_INIT = """#!/bin/sh
# Process 1: waits, reaps orphans, ends at once when asked.
trap 'exit 0' TERM PWR INT
while :; do sleep 1000 & wait; done
"""


def cache_dir() -> Path:
    """Outside the checkout, so that a second checkout finds it."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    path = Path(base) / "dflash-toolkit" / "places"
    path.mkdir(parents=True, exist_ok=True)
    return path


@contextmanager
def locked(path: Path, kind: int) -> Iterator[None]:
    """Hold an advisory lock (`fcntl.LOCK_EX` or `LOCK_SH`) on a file for the body."""
    with path.open("a") as handle:
        fcntl.flock(handle, kind)
        yield


def debian_root() -> Path:
    """The cached root; about 35 s the first time on a machine."""
    cache = cache_dir()
    root = cache / f"{SUITE}-{RECIPE}"
    with locked(cache / "build.lock", fcntl.LOCK_EX):
        if not root.exists():
            building = cache / f"{root.name}.building"
            shutil.rmtree(building, ignore_errors=True)
            _debootstrap(building)
            building.rename(root)
    return root


def _debootstrap(into: Path) -> None:
    log = into.with_suffix(".log")
    argv = ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", SUITE, str(into)]
    with log.open("wb") as out:
        done = subprocess.run(
            argv, stdout=out, stderr=out, stdin=subprocess.DEVNULL, timeout=900, check=False
        )
    if done.returncode != 0:
        give_up(f"debootstrap failed ({done.returncode}), see {log}")
    init = into / "sbin" / "bench-init"
    init.write_text(_INIT)
    init.chmod(0o755)
    shutil.rmtree(into / "var" / "cache" / "apt", ignore_errors=True)
