"""Which process wrote this: boot id, pid, start ticks and pid namespace.

A pid alone is reused; together with its start ticks it is unique within one boot. The boot id
inside a container may differ from the host's, so identities compare only as seen from one place.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from dflash_events.schema import RunDirError


class Identity(NamedTuple):
    """A process, told apart from all that had its pid before or will have it later."""

    pid: int
    start_ticks: int
    """Field 22 of `/proc/PID/stat`: clock ticks since boot."""
    boot_id: str | None = None
    """`/proc/sys/kernel/random/boot_id` as the process itself reads it; None is unknown."""
    pid_namespace: int | None = None
    """Inode of `/proc/self/ns/pid`; None is unknown."""

    def same_as(self, other: Identity) -> bool:
        """Whether both mean one process; what either side does not know is left out."""
        return (self.pid, self.start_ticks) == (
            other.pid,
            other.start_ticks,
        ) and self.same_place_as(other)

    def same_place_as(self, other: Identity) -> bool:
        """Whether pids of both count in one namespace and boot, as far as known."""
        return all(
            ours is None or theirs is None or ours == theirs
            for ours, theirs in (
                (self.boot_id, other.boot_id),
                (self.pid_namespace, other.pid_namespace),
            )
        )

    def as_dict(self) -> dict[str, object]:
        """As it stands in run.json."""
        return dict(self._asdict())


def identity_from(record: object) -> Identity:
    """The identity out of run.json's `process`.

    Raises:
        RunDirError: not an object with integer `pid` and `start_ticks`.
    """
    if not isinstance(record, dict):
        raise RunDirError(f"process: got {type(record).__name__}, expected an object")
    pid, ticks = record.get("pid"), record.get("start_ticks")
    if not isinstance(pid, int) or not isinstance(ticks, int):
        raise RunDirError(
            f"process: got pid {pid!r} and start_ticks {ticks!r}, expected two integers"
        )
    boot, namespace = record.get("boot_id"), record.get("pid_namespace")
    return Identity(
        pid,
        ticks,
        boot if isinstance(boot, str) else None,
        namespace if isinstance(namespace, int) else None,
    )


def read_identity(
    pid: int | None = None, proc: str | os.PathLike[str] = "/proc"
) -> Identity | None:
    """Identity of a live process (None: this one), or None where no such process is.

    Args:
        pid: process id in our own namespace.
        proc: root of procfs; tests hand in a miniature one.
    """
    entry = str(pid) if pid is not None else "self"
    stat = parse_stat(_text(f"{os.fspath(proc)}/{entry}/stat"))
    if stat is None:
        return None
    boot = _text(f"{os.fspath(proc)}/sys/kernel/random/boot_id")
    return Identity(stat[0], stat[1], boot.strip() if boot else None, _namespace(proc))


def parse_stat(text: str | None) -> tuple[int, int] | None:
    """Pid and start ticks out of `/proc/PID/stat`; the command in it may hold anything."""
    if not text or ")" not in text:
        return None
    fields = text[text.rindex(")") + 1 :].split()
    head = text.split(" ", 1)[0]
    if len(fields) < 20 or not head.isdigit() or not fields[19].isdigit():
        return None
    return int(head), int(fields[19])


def is_alive(identity: Identity, proc: str | os.PathLike[str] = "/proc") -> bool | None:
    """Whether that very process lives; None where pids of another place or boot were written."""
    here = read_identity(None, proc)
    if here is None or not here.same_place_as(identity):
        return None
    now = read_identity(identity.pid, proc)
    return now is not None and now.same_as(identity)


def _namespace(proc: str | os.PathLike[str]) -> int | None:
    try:
        return os.stat(f"{os.fspath(proc)}/self/ns/pid").st_ino
    except OSError:
        return None


def _text(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return None
