"""Logs as the run really writes them: identity, position, new bytes.

`read` gets sources (logsources.py) and keeps a cursor a file; it may block on a dead network mount,
where it runs in a child. Text is data from strangers: decoded with replacement, never acted upon.
"""

from __future__ import annotations

import os
import stat as stat_module
from typing import Any, Dict, List, Optional

from dflash_watch.agent.logcursor import (
    FIRST_BYTES,
    FIRST_BYTES_OF_OTHERS,
    Cursor,
    open_source,
    path_state,
)
from dflash_watch.agent.logsources import Source

MAX_TEXT_BYTES = 131072
"""Of all logs in one frame."""


class LogReader:
    """Cursors over the logs of one run."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._cursors: Dict[str, Cursor] = {}
        self._first_path: Dict[str, str] = {}

    def read(
        self,
        sources: List[Source],
        watched: Optional[str],
        now_wall_s: float,
        *,
        asked: bool = False,
    ) -> List[Dict[str, Any]]:
        """`frame.LogSample`s of this moment.

        Args:
            sources: what the run writes to.
            watched: the path that was asked for or that run.json names.
            now_wall_s: for the age of the last change.
            asked: a person named `watched`: say so when the run writes elsewhere.
        """
        samples: List[Dict[str, Any]] = []
        seen: set[str] = set()
        budget = MAX_TEXT_BYTES
        for source in sources:
            sample = self._read_one(source, watched, now_wall_s, seen, budget)
            if sample is not None:
                samples.append(sample)
                budget -= len(sample.get("text", ""))
        if watched:
            self._settle_watched(samples, watched, now_wall_s, seen, asked=asked)
        return samples

    def state(self) -> Dict[str, Any]:
        """What a successor needs to go on where this one stopped."""
        return {
            "cursors": {key: [cursor.offset, cursor.head] for key, cursor in self._cursors.items()},
            "first_path": self._first_path,
        }

    def restore(self, state: Dict[str, Any]) -> None:
        """Go on where a predecessor stopped."""
        self._cursors = {key: Cursor(*value) for key, value in state.get("cursors", {}).items()}
        self._first_path = dict(state.get("first_path", {}))

    def _read_one(
        self,
        source: Source,
        watched: Optional[str],
        now_wall_s: float,
        seen: set[str],
        budget: int,
    ) -> Optional[Dict[str, Any]]:
        sample: Dict[str, Any] = {"path": source.path, "via": source.via}
        if source.kind != "file":
            return dict(sample, is_tty=True) if source.kind == "tty" else sample
        try:
            descriptor, through = open_source(self._root, source.pid, source.fd, source.path)
        except FileNotFoundError:
            return None  # closed meanwhile, or its process has ended and the path is gone
        except OSError:
            return sample
        try:
            there = os.fstat(descriptor)
            if not stat_module.S_ISREG(there.st_mode):
                return None
            key = f"{there.st_dev}:{there.st_ino}"
            if key in seen:
                return None
            if (
                not through
                and self._cursors
                and key not in self._cursors
                and source.via != "option"
            ):
                return None  # the process is gone and another file has taken the path
            seen.add(key)
            sample.update(self._text(descriptor, key, there, first=not seen - {key}, budget=budget))
            sample.update(self._identity(source, key, there, watched, now_wall_s))
            return sample
        finally:
            os.close(descriptor)

    def _text(
        self, descriptor: int, key: str, there: os.stat_result, *, first: bool, budget: int
    ) -> Dict[str, Any]:
        cursor = self._cursors.setdefault(key, Cursor())
        if budget <= 0:
            return {"offset": cursor.offset}
        new = cursor.read(
            descriptor, there.st_size, FIRST_BYTES if first else FIRST_BYTES_OF_OTHERS
        )
        return {name: value for name, value in new.items() if value or name == "offset"}

    def _identity(
        self,
        source: Source,
        key: str,
        there: os.stat_result,
        watched: Optional[str],
        now_wall_s: float,
    ) -> Dict[str, Any]:
        deleted = there.st_nlink == 0
        if key not in self._first_path:
            # A path of another mount namespace names nothing here, or another file.
            seen = _same_file(visible(self._root, source.pid, source.path), there)
            self._first_path[key] = source.path if seen else ""
        first_path = self._first_path[key]
        mine = watched if watched and _same_file(watched, there) else None
        is_left = first_path and (first_path != source.path or deleted)
        expected = mine or (first_path if is_left else None)
        compared = expected or first_path
        facts: Dict[str, Any] = {
            "inode": there.st_ino,
            "size_bytes": there.st_size,
            "mtime_age_s": round(max(0.0, now_wall_s - there.st_mtime), 2),
            "pos_bytes": source.pos,
            "append": source.append,
            "deleted": deleted,
            "watched_path": expected,
            "path_state": path_state(
                visible(self._root, source.pid, compared) if compared else None,
                there,
                source.path,
                deleted=deleted,
            ),
        }
        return {
            name: value
            for name, value in facts.items()
            if name == "append" or (value is not None and value is not False)
        }

    def _settle_watched(
        self,
        samples: List[Dict[str, Any]],
        watched: str,
        now_wall_s: float,
        seen: set[str],
        *,
        asked: bool,
    ) -> None:
        """The watched path is none of the files written: show it as well, and say so if asked."""
        claimed = [sample for sample in samples if sample.get("watched_path") == watched]
        if claimed and claimed[0].get("path_state") != "other-file":
            return
        if asked and not claimed:
            self._claim(samples, watched)
        by_path = Source(None, None, watched, "option", None, None, None)
        extra = self._read_one(by_path, watched, now_wall_s, seen, MAX_TEXT_BYTES)
        if extra is not None and (extra.get("inode") is not None or not samples):
            samples.append(extra)

    def _claim(self, samples: List[Dict[str, Any]], watched: str) -> None:
        """The first file written carries what became of the path that was asked for."""
        known = watched in self._first_path.values()
        for sample in samples:
            if sample.get("inode") is not None and sample.get("via") != "option":
                there = os.path.exists(watched)
                state = "other-file" if there else "moved" if known else "missing"
                sample.update(watched_path=watched, path_state=state)
                return


def visible(root: str, pid: Optional[int], path: str) -> str:
    """The path as it can be reached from here: processes in containers have a root of their own."""
    if pid is None or os.path.exists(path):
        return path
    inside = f"{root}/{pid}/root{path}"
    return inside if os.path.exists(inside) else path


def _same_file(path: str, there: os.stat_result) -> bool:
    try:
        found = os.stat(path)
    except OSError:
        return False
    return (found.st_dev, found.st_ino) == (there.st_dev, there.st_ino)
