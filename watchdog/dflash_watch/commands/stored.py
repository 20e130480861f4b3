"""Small files in the state directory: whole or not there, for their owner only, never in the way.

Written aside and renamed, so that a process that is killed leaves the old one or the new one. One
that is damaged is set aside and said once; one of a later version is left alone.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dflash_watch.private import make_folder, open_private, open_regular

MOST_BYTES = 1 << 20
SCHEMA = 1
MOST_FILES = 300
"""In one folder; those that were not written for longest are forgotten."""
logger = logging.getLogger(__name__)


def read_stored(path: Path) -> dict[str, Any]:
    """What lies there, never waiting for it; empty when it is nothing of ours."""
    try:
        with open_regular(path) as file:
            content = file.read(MOST_BYTES + 1)
    except OSError:
        return {}
    try:
        data = json.loads(content) if len(content) <= MOST_BYTES else None
    except (ValueError, RecursionError):
        data = None
    if isinstance(data, dict):
        return data
    set_aside(path)
    return {}


def set_aside(path: Path) -> None:
    """A damaged file gets out of the way; the newest one is kept for whoever wonders."""
    aside = path.with_suffix(".damaged")
    try:
        path.replace(aside)
    except OSError:
        aside = path  # it stays, and is written over
    logger.warning("%s is damaged: kept as %s, begun anew", path, aside.name)


def is_newer(data: Mapping[str, Any]) -> bool:
    """Of a later version: not understood here, and not to be overwritten."""
    schema = data.get("schema")
    return isinstance(schema, int) and schema > SCHEMA


def write_stored(path: Path, data: Mapping[str, Any]) -> None:
    """Put it in place of what lies there, unless that is of a later version.

    Raises:
        OSError: it cannot be written; what was there stays.
    """
    if is_newer(read_stored(path)):
        return
    new = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}.new")
    try:
        make_folder(path.parent)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        with os.fdopen(open_private(new, flags), "w", encoding="utf-8") as file:
            file.write(json.dumps(data))
        new.replace(path)
    except OSError:
        with contextlib.suppress(OSError):  # an empty one is all that a full disk took
            new.unlink()
        raise


class Writer:
    """Writes such files; says once why it cannot, and tries again with the next.

    Args:
        lost: for people, what is lost meanwhile.
    """

    def __init__(self, lost: str) -> None:
        self._lost, self._refused = lost, 0

    def put(self, path: Path, data: Mapping[str, Any]) -> None:
        """Put it in place; a full disk lasts as long as it lasts, and no longer."""
        try:
            write_stored(path, data)
        except OSError as error:
            number = error.errno or -1
            if number != self._refused:
                logger.warning("%s: %s", self._lost, error)
            self._refused = number
        else:
            self._refused = 0


def forget_oldest(folder: Path, most: int = MOST_FILES) -> None:
    """Keep the newest files only; what a killed process had half written goes with the rest."""
    try:
        seen = [(one.stat().st_mtime, one) for one in folder.iterdir() if one.is_file()]
    except OSError:
        return  # there is none yet, or somebody else tidies up
    for _, one in sorted(seen, reverse=True)[most:]:
        with contextlib.suppress(OSError):
            one.unlink()
