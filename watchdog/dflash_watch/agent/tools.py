"""The stack dumper: found on the watched machine, or pushed by the watcher and kept in memory."""

from __future__ import annotations

import os
from typing import Dict, List, Optional

from dflash_watch.agent.memory import read_argv, read_maps
from dflash_watch.agent.proc import read_link

PLACES = (
    "/usr/local/bin",
    "/usr/bin",
    "/opt/conda/bin",
    "/opt/venv/bin",
    "/root/.local/bin",
    "/venv/bin",
)


class Tools:
    """Tools by name; a pushed one lives in a memory file: no writable mount is needed."""

    def __init__(self) -> None:
        self._pushed: Dict[str, int] = {}

    def find(self, name: str, near: List[str]) -> Optional[str]:
        """Path of a tool: in the run's own environment, on PATH, in the usual places, or pushed."""
        path = os.environ.get("PATH", "").split(os.pathsep)
        directories = [place for place in [*near, *path, *PLACES] if place.startswith("/")]
        found = which(name, directories)
        if found is not None:
            return found
        descriptor = self._pushed.get(name)
        return None if descriptor is None else f"/proc/{os.getpid()}/fd/{descriptor}"

    def keep(self, name: str, data: bytes, sha256: str) -> Optional[str]:
        """Keep a pushed tool; says what is wrong with it, None when nothing is."""
        if not name.replace("-", "").isalnum():
            return f"tool: a plain name expected, got {name!r}"
        if sha256 and digest(data) != sha256:
            return f"tool {name}: the bytes that came are not the ones sent (sha256 differs)"
        if not hasattr(os, "memfd_create"):
            return f"tool {name}: this Python cannot make a file in memory"
        try:
            descriptor = os.memfd_create("dflash-" + name, os.MFD_CLOEXEC)
        except OSError as error:
            return f"tool {name}: no file in memory can be made here ({error.strerror})"
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(data)
        os.fchmod(descriptor, 0o500)
        if name in self._pushed:
            os.close(self._pushed[name])
        self._pushed[name] = descriptor
        return None


def which(name: str, directories: List[str]) -> Optional[str]:
    """The first executable of that name in these directories."""
    for directory in directories:
        path = os.path.join(directory, name)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return None


def digest(data: bytes) -> str:
    """sha256 as hex digits."""
    import hashlib  # late: it loads OpenSSL, three megabytes that most agents never need

    return hashlib.sha256(data).hexdigest()


def directories_of(root: str, pid: int) -> List[str]:
    """Where the environment of a Python process keeps its tools: beside its binary, in its venv.

    The venv is known by the libraries that the process has mapped from it.
    """
    found = []
    exe = read_link(f"{root}/{pid}/exe")
    if exe:
        found.append(os.path.dirname(exe))
    argv = read_argv(root, pid)
    if argv and argv[0].startswith("/"):
        found.append(os.path.dirname(argv[0]))
    for line in read_maps(root, pid).splitlines():
        place = line.find("/")
        mark = line.find("/lib/python3", place)
        if place >= 0 and mark > 0 and "/site-packages/" in line:
            found.append(line[place:mark] + "/bin")
    return list(dict.fromkeys(found))
