"""Private folders in which servers are found: one locked file and one socket a server.

The lock ends with its process however that ends, so a server that was killed is never taken for a
living one, and one that is merely stopped never for a dead one. Sockets are reached through the
folder's descriptor: no length of path is too long, and nobody can put another folder in its place.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import socket
import stat
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from dflash_watch.model import Record
from dflash_watch.place import Place, TargetChoice
from dflash_watch.private import make_folder

FOLDER_NAME = "dflash-watch"
LONGEST_NAME = 40
MOST_BYTES = 4096
LOOKERS_S = 1.0
"""Who only lists servers holds a lock for microseconds: that is no server."""
_CARD, _SOCKET = ".json", ".sock"


class Card(Record, frozen=True, kw_only=True):
    """What a server says about itself in its folder; nothing of its command line, no secret."""

    name: str
    pid: int
    key: str
    """Equal for servers of the same place and run."""
    what: str
    """For people: `10.1.2.6 · ct 200`."""
    since_t: float
    host: str = ""


class Served(Record, frozen=True, kw_only=True):
    """A server that lives."""

    card: Card
    folder: Path


def served_name(place: Place, target: TargetChoice, name: str | None) -> str:
    """A short name that can be typed: `10.1.2.6-ct-200`, `a` for `--run-dir runs/a`, `local`."""
    words = [name] if name else _words(place, target)
    text = "-".join(re.sub(r"[^\w.]+", "-", word) for word in words)
    return re.sub(r"-{2,}", "-", text).strip("-._")[:LONGEST_NAME].strip("-._") or "local"


def _words(place: Place, target: TargetChoice) -> list[str]:
    where = [] if place.label() == Place().label() else [place.label()]
    if target.pid is not None:
        return [*where, f"pid-{target.pid}"]
    paths = [os.path.basename(one.rstrip("/")) for one in (target.run_dir, target.log) if one]
    chosen = [*paths, *filter(None, (target.match, target.tmux))]
    return [*where, *chosen] or ["local"]


def server_folders(environment: Mapping[str, str], state: Path) -> list[Path]:
    """Where a server of this environment puts itself, best first.

    Args:
        environment: systemd's RUNTIME_DIRECTORY, else XDG_RUNTIME_DIR.
        state: of this person; where neither is usable.
    """
    given = environment.get("RUNTIME_DIRECTORY", "").split(":")[0]
    runtime = environment.get("XDG_RUNTIME_DIR", "")
    found = [Path(given)] if given else []
    found += [Path(runtime) / FOLDER_NAME] if runtime else []
    return [*found, state / "serve"]


def viewer_folders(environment: Mapping[str, str], state: Path) -> list[Path]:
    """Where servers are looked for: those of this environment, of a login, and of systemd."""
    usual = [Path(f"/run/user/{os.getuid()}") / FOLDER_NAME, Path("/run") / FOLDER_NAME]
    return list(dict.fromkeys([*server_folders(environment, state), *usual]))


@contextlib.contextmanager
def opened(folder: Path, *, make: bool = False) -> Iterator[int]:
    """The folder's descriptor, once it is known to be private.

    Args:
        folder: of servers.
        make: make it, and take rights away from others.

    Raises:
        OSError: it is not there, or not ours alone.
    """
    if make:
        make_folder(folder)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        seen = os.fstat(descriptor)
        if make and seen.st_uid == os.geteuid() and stat.S_IMODE(seen.st_mode) & 0o077:
            os.fchmod(descriptor, 0o700)
            seen = os.fstat(descriptor)
        is_ours = seen.st_uid == os.geteuid() or (os.geteuid() == 0 and not make)
        if not is_ours or stat.S_IMODE(seen.st_mode) & 0o022:
            raise PermissionError(1, "is not this user's alone", str(folder))
        yield descriptor
    finally:
        os.close(descriptor)


def address(descriptor: int, name: str) -> str:
    """Of a server's socket in an opened folder: short, whatever the folder is called."""
    return f"/proc/self/fd/{descriptor}/{name}{_SOCKET}"


def find_servers(folders: list[Path]) -> list[Served]:
    """All that live, by name; each once."""
    found: dict[str, Served] = {}
    for folder in folders:
        with contextlib.suppress(OSError), opened(folder) as descriptor:
            for entry in sorted(os.listdir(descriptor)):
                card = _living(descriptor, entry)
                if card is not None:
                    found.setdefault(card.name, Served(card=card, folder=folder))
    return [found[name] for name in sorted(found)]


def _living(descriptor: int, entry: str) -> Card | None:
    """The card of a server whose lock is held; None for anything else."""
    if not entry.endswith(_CARD):
        return None
    try:
        file = os.open(entry, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=descriptor)
    except OSError:
        return None
    try:
        card = read_card(file) if _is_held(file) else None
    finally:
        os.close(file)
    return card if card is not None and f"{card.name}{_CARD}" == entry else None


def read_card(file: int) -> Card | None:
    """What the file says; None when that is no card."""
    try:
        return msgspec.json.decode(os.pread(file, MOST_BYTES, 0), type=Card)
    except (OSError, msgspec.DecodeError, RecursionError):
        return None


def _lock(file: int, how: int) -> bool:
    """False while somebody else holds it; OSError where there are no locks."""
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class Claim:
    """A name that is ours while this process lives, and its listening socket (`door`).

    Use `claim`.
    """

    def __init__(self, card: Card, folder: Path, descriptor: int, file: int) -> None:
        self.card, self.folder = card, folder
        self._descriptor, self._file = os.dup(descriptor), file
        self.door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        at = address(self._descriptor, card.name)
        with contextlib.suppress(FileNotFoundError):  # of a server that was killed
            os.unlink(at)
        os.truncate(file, 0)
        os.pwrite(file, msgspec.json.encode(card) + b"\n", 0)
        self.door.bind(at)
        os.chmod(at, 0o600)
        self.door.listen(16)

    def shut(self) -> None:
        """Nobody comes in any more; who accepts is woken."""
        with contextlib.suppress(OSError):  # shut before
            self.door.shutdown(socket.SHUT_RDWR)

    def release(self) -> None:
        """Give the name back: socket and file go, the lock last."""
        self.shut()
        self.door.close()
        for suffix in (_SOCKET, _CARD):
            with contextlib.suppress(OSError):  # somebody tidied up
                os.unlink(f"{self.card.name}{suffix}", dir_fd=self._descriptor)
        os.close(self._file)
        os.close(self._descriptor)


def claim(folder: Path, card: Card) -> Claim | None:
    """Take the card's name in this folder; None when a living server has it.

    Raises:
        OSError: the folder cannot be used.
    """
    with opened(folder, make=True) as descriptor:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        while True:
            file = os.open(f"{card.name}{_CARD}", flags, 0o600, dir_fd=descriptor)
            try:
                if not _lock_within(file, LOOKERS_S):
                    os.close(file)
                    return None
                if _is_there(file, f"{card.name}{_CARD}", descriptor):
                    return Claim(card, folder, descriptor, file)
            except BaseException:
                os.close(file)
                raise
            os.close(file)  # a server that ended meanwhile took the file with it


def _is_held(file: int) -> bool:
    """A living process holds it; where there are no locks, nobody does."""
    try:
        return not _lock(file, fcntl.LOCK_SH)
    except OSError:
        return False


def _lock_within(file: int, wait_s: float) -> bool:
    end_s = time.monotonic() + wait_s
    while not _lock(file, fcntl.LOCK_EX):
        if time.monotonic() > end_s:
            return False
        time.sleep(0.05)
    return True


def _is_there(file: int, name: str, descriptor: int) -> bool:
    """The locked file is still the one of that name."""
    try:
        seen = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(seen, os.fstat(file))
