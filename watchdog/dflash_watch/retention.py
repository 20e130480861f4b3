"""How much the folder of incidents may hold: the oldest go first, and only what is ours.

Never removed: the newest three, incidents that a watcher on this machine still has open, and those
in which a person put a file named `keep`. Several watchers may share the folder.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from dflash_watch.journal import Note, note_nothing

BUDGET_BYTES = 512 << 20
"""All incidents together, as they lie on the disk."""
KEEP_LEAST = 3
"""Incidents kept whatever their size."""
OPEN_MARK, KEEP_MARK = ".open", "keep"
_NAME = re.compile(r"^\d{8}T\d{6}Z-[a-z0-9-]+(\.txt)?$")
_UNFINISHED = re.compile(r"^\.\d{8}T\d{6}Z-[a-z0-9-]+\.(\d+)(?:-\d+)?\.tmp$")
logger = logging.getLogger(__name__)


def prune(folder: Path, budget_bytes: int, note: Note = note_nothing) -> list[str]:
    """Remove the oldest incidents until the rest fits; names of those removed.

    Only what this program wrote is touched: whole incident folders, stacks that were asked for, and
    what a watcher that was killed left unfinished.
    """
    sweep(folder)
    removed, size = [], 0
    for number, one in enumerate(sorted(_ours(folder), reverse=True)):
        bytes_there = size_on_disk(one)
        size += bytes_there
        if number < KEEP_LEAST or size <= budget_bytes or is_held(one):
            continue
        size -= bytes_there
        if _remove(one):
            removed.append(one.name)
            note("incident", "removed", path=str(one), bytes=bytes_there, budget=budget_bytes)
    if removed:
        logger.warning(
            "incidents beyond %d MiB removed: %s", budget_bytes >> 20, ", ".join(removed)
        )
    return removed


def sweep(folder: Path) -> None:
    """Remove what watchers that do not run any more left unfinished."""
    for one in _entries(folder):
        found = _UNFINISHED.match(one.name)
        if found and not one.is_symlink() and not is_alive(int(found[1])):
            shutil.rmtree(one, ignore_errors=True)


def mark_open(path: Path) -> None:
    """This watcher still has the incident open: nobody removes it while this process lives."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path / OPEN_MARK, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(f"{os.getpid()}\n")


def mark_closed(path: Path) -> None:
    """It may be removed when its time has come."""
    with contextlib.suppress(OSError):
        (path / OPEN_MARK).unlink()


def is_held(path: Path) -> bool:
    """Somebody still needs it: a watcher that has it open, or a person."""
    if (path / KEEP_MARK).exists():
        return True
    try:
        return is_alive(int((path / OPEN_MARK).read_text()[:20]))
    except (OSError, ValueError):
        return False


def is_alive(pid: int) -> bool:
    """A process of that number runs on this machine."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return True


def size_on_disk(path: Path) -> int:
    """Bytes that it takes up, holes left out; what vanishes meanwhile takes up none."""
    total = 0
    try:
        seen = path.lstat()
    except OSError:
        return 0
    if stat.S_ISDIR(seen.st_mode):
        total += sum(size_on_disk(one) for one in _entries(path))
    return total + seen.st_blocks * 512


def _ours(folder: Path) -> Iterator[Path]:
    for one in _entries(folder):
        if not _NAME.match(one.name) or one.is_symlink():
            continue
        if (one / "verdict.json").is_file() or (
            one.name.removesuffix(".txt").partition("-")[2].startswith("asked-stacks")
            and one.is_file()
        ):
            yield one


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:  # another watcher was faster
        return []


def _remove(path: Path) -> bool:
    """Out of sight at once, then away: what is half removed is no incident."""
    if path.is_file():
        try:
            path.unlink()
        except OSError:
            return False
        return True
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.rename(aside)
    except OSError:  # another watcher was faster, or the folder may not be changed
        return False
    shutil.rmtree(aside, ignore_errors=True)
    return True
