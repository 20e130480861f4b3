"""Stack samplers: found on the watched machine, or pushed by the watcher and kept in memory."""

from __future__ import annotations

import os
from typing import Dict, Iterable, List, NamedTuple, Optional, Tuple

from dflash_watch.agent.memory import read_argv, read_maps
from dflash_watch.agent.proc import parse_pairs, read_link, read_text

PLACES = (
    "/usr/local/bin",
    "/usr/bin",
    "/opt/conda/bin",
    "/opt/venv/bin",
    "/root/.local/bin",
    "/venv/bin",
)
MFD_CLOEXEC, MFD_EXEC = 0x1, 0x10


class Found(NamedTuple):
    """One way to start a sampler."""

    command: List[str]
    how: str
    """For people: where it is from."""
    user: Optional[Tuple[int, int]] = None
    """uid and gid to become first; None: as we are."""


class Tools:
    """Pushed tools by name; each lives in a memory file: no writable mount is needed."""

    def __init__(self) -> None:
        self._pushed: Dict[str, int] = {}
        self.problem: Optional[str] = None
        """Why the tool that was pushed last cannot be used."""

    def find(self, name: str) -> Optional[str]:
        """Path of a tool on PATH or in the usual places: for the greeting."""
        return which(name, directories_here())

    def pushed(self, name: str) -> Optional[str]:
        """Path of a pushed tool."""
        descriptor = self._pushed.get(name)
        return None if descriptor is None else f"/proc/{os.getpid()}/fd/{descriptor}"

    def keep(self, name: str, data: bytes, sha256: str) -> Optional[str]:
        """Keep a pushed tool; says what is wrong with it, None when nothing is."""
        self.problem = self._keep(name, data, sha256)
        return self.problem

    def _keep(self, name: str, data: bytes, sha256: str) -> Optional[str]:
        if not name.replace("-", "").isalnum():
            return f"tool: a plain name expected, got {name!r}"
        if sha256 and digest(data) != sha256:
            return f"tool {name}: the bytes that came are not the ones sent (sha256 differs)"
        if not hasattr(os, "memfd_create"):
            return f"tool {name}: this Python cannot make a file in memory"
        try:
            descriptor = memory_file("dflash-" + name)
            with os.fdopen(os.dup(descriptor), "wb") as file:
                file.write(data)
            os.fchmod(descriptor, 0o500)
        except OSError as error:
            return f"tool {name}: no executable file in memory: {error.strerror}"
        if name in self._pushed:
            os.close(self._pushed[name])
        self._pushed[name] = descriptor
        return None


def memory_file(name: str) -> int:
    """An anonymous file that may be made executable, where the kernel asks for that to be said.

    Raises:
        OSError: `vm.memfd_noexec` forbids it, or there is no memory.
    """
    try:
        return os.memfd_create(name, MFD_CLOEXEC | MFD_EXEC)
    except OSError:  # a kernel before 6.3 does not know the flag
        return os.memfd_create(name, MFD_CLOEXEC)


def directories_here() -> List[str]:
    """PATH, then the usual places."""
    path = os.environ.get("PATH", "").split(os.pathsep)
    return [place for place in [*path, *PLACES] if place.startswith("/")]


def which(name: str, directories: Iterable[str]) -> Optional[str]:
    """The first executable of that name in these directories."""
    for directory in directories:
        path = os.path.join(directory, name)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return None


def find_pystack(directories: Iterable[str]) -> Optional[List[str]]:
    """How to start pystack: its script, else the Python that has it as a module."""
    for directory in directories:
        script = which("pystack", [directory])
        if script is not None:
            return [script]
        python = which("python", [directory]) or which("python3", [directory])
        if python is not None and _has_module(directory, "pystack"):
            return [python, "-B", "-I", "-m", "pystack"]
    return None


def _has_module(directory: str, name: str) -> bool:
    library = os.path.join(os.path.dirname(directory), "lib")
    try:
        versions = [one for one in os.listdir(library) if one.startswith("python3")]
    except OSError:
        return False
    return any(
        os.path.isfile(os.path.join(library, one, "site-packages", name, "__main__.py"))
        for one in versions
    )


def guest_user(root: str, pid: int, path: str) -> Optional[Tuple[int, int]]:
    """As whom a tool runs: root starts nothing that others may have put there.

    Returns:
        The process's own user, where we are root and the file could be changed by somebody else;
        None: as we are.
    """
    if os.geteuid() != 0 or is_roots(path):
        return None
    pairs = parse_pairs(read_text(f"{root}/{pid}/status", 8192) or "")
    words = [pairs.get(key, "").split() for key in ("Uid", "Gid")]
    if not all(words) or words[0][0] == "0":
        return None
    return int(words[0][0]), int(words[1][0])


def is_roots(path: str) -> bool:
    """Nobody but root can change this file, what its name leads to, or a folder above."""
    return all(_is_roots_way(each) for each in {os.path.abspath(path), os.path.realpath(path)})


def _is_roots_way(path: str) -> bool:
    while True:
        try:
            status = os.stat(path)
        except OSError:
            return False
        is_sticky = bool(status.st_mode & 0o1000)
        if status.st_uid != 0 or (status.st_mode & 0o022 and not is_sticky):
            return False
        if path == "/":
            return True
        path = os.path.dirname(path)


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
