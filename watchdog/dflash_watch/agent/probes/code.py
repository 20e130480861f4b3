"""Are the source files on disk what the run loaded? Asked once a minute, in a disposable child.

A run that wrote run.json tells the hashes of what it loaded; of any other the files beside its
script are held against the moment it began. Nothing is imported, nothing is executed.
"""

from __future__ import annotations

import hashlib
import os
import time
from typing import Any, Dict, Iterator, List, Optional

from dflash_watch.agent import proc
from dflash_watch.agent.child import Child
from dflash_watch.agent.memory import read_argv

FIRST_S, EVERY_S, DEADLINE_S = 20.0, 60.0, 4.0
MAX_FILES, MAX_HASHED, MAX_DEPTH, MAX_SHOWN = 1000, 300, 3, 20
MAX_BYTES = 4 * 1024 * 1024
LATER_S = 2.0
"""A file that is newer than the process by less was there when it was read."""
NOT_SOURCES = frozenset(
    ("__pycache__", "site-packages", "dist-packages", "node_modules", "venv", "env", "build")
)


class CodeSource:
    """Asks now and then; between two answers there is no child.

    Args:
        root: `/proc`.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self.child = Child("source files", check, DEADLINE_S)
        self._due_s: Optional[float] = None
        self._is_asked = False

    def ask(self, pids: List[int], manifest: Optional[Dict[str, Any]], now_s: float) -> None:
        """Begin a check when one is due."""
        self._due_s = now_s + FIRST_S if self._due_s is None else self._due_s
        if self._is_asked or now_s < self._due_s or not pids:
            return
        request = request_of(self._root, pids, manifest, now_s)
        self._due_s = now_s + EVERY_S
        if request is not None:
            self._is_asked = self.child.ask(request, now_s)

    def collect(self, now_s: float) -> Optional[Dict[str, Any]]:
        """`frame.CodeSample` when an answer has come; then the child is let go."""
        if not self._is_asked:
            return None
        answer = self.child.collect(now_s, 0.0)
        if answer is None and self.child.gap(now_s) is None:
            return None
        self._is_asked = False
        self.child.close()
        return None if answer is None or "error" in answer else answer

    def close(self) -> None:
        """End the child."""
        self.child.close()


def request_of(
    root: str, pids: List[int], manifest: Optional[Dict[str, Any]], now_s: float
) -> Optional[Dict[str, Any]]:
    """What to check: hashes of run.json, else a folder and a moment; None: nothing is known."""
    sources = (manifest or {}).get("sources")
    if isinstance(sources, dict) and sources:
        told = {path: told for path, told in sources.items() if isinstance(told, str)}
        return {"sources": dict(list(told.items())[:MAX_HASHED])}
    for pid in pids:
        stat = proc.read_stat(root, pid)
        script = script_of(root, pid)
        age_s = proc.age_s(stat.start_ticks, now_s) if stat is not None else None
        if script is not None and age_s is not None:
            return {"folder": os.path.dirname(script), "began_t": time.time() - age_s}
    return None


def script_of(root: str, pid: int) -> Optional[str]:
    """The script on a Python's command line, as an absolute path."""
    argv = read_argv(root, pid)
    exe = proc.read_link(f"{root}/{pid}/exe")
    cwd = proc.read_link(f"{root}/{pid}/cwd")
    if not proc.is_python(exe, "", argv) or cwd is None:
        return None
    for word in argv[1:]:
        if word.endswith(".py"):
            path = os.path.normpath(os.path.join(cwd, word))
            return None if NOT_SOURCES & set(path.split("/")) else path
    return None


def check(request: Dict[str, Any]) -> Dict[str, Any]:
    """Runs in the child only."""
    if "sources" in request:
        changed = list(differing(request["sources"]))
        return sample("hashes", len(request["sources"]), changed)
    files = list(python_files(request["folder"]))
    began_t = request["began_t"] + LATER_S
    newer = [path for path in files if modified_t(path) > began_t]
    return sample("times", len(files), [(path, "newer") for path in newer])


def differing(sources: Dict[str, str]) -> Iterator[Any]:
    """(path, `differs` or `removed`) of files that are not what was loaded."""
    for path, told in sorted(sources.items()):
        if not os.path.exists(path):
            yield path, "removed"
            continue
        data = proc.read_bytes(path, MAX_BYTES)
        if data is not None and hashlib.sha256(data).hexdigest() != told:
            yield path, "differs"


def python_files(folder: str, depth: int = 0) -> Iterator[str]:
    """Sources in a folder and a few levels below, at most MAX_FILES."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    left = MAX_FILES
    for entry in entries:
        if entry.name.startswith(".") or entry.name in NOT_SOURCES or left <= 0:
            continue
        try:
            is_folder = entry.is_dir(follow_symlinks=False)
        except OSError:
            continue
        if not is_folder:
            if entry.name.endswith(".py"):
                left -= 1
                yield entry.path
        elif depth < MAX_DEPTH:
            for path in python_files(entry.path, depth + 1):
                left -= 1
                yield path


def modified_t(path: str) -> float:
    """When it was last written; the past for a file that is gone meanwhile."""
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0


def sample(how: str, num_files: int, changed: List[Any]) -> Dict[str, Any]:
    """The part of a frame."""
    now_t = time.time()
    rows = []
    for path, change in changed[:MAX_SHOWN]:
        written_t = modified_t(path)
        age_s = round(now_t - written_t, 1) if written_t else None
        rows.append({"path": path, "change": change, "age_s": age_s})
    return {"how": how, "num_files": num_files, "num_changed": len(changed), "changed": rows}
