"""Small reads below `/proc`: text, links, `stat` lines, clocks. Knows nothing about runs.

Every reader answers None where the kernel refuses or the process is gone; who asks turns that into
a gap. `root` is `/proc`, or a miniature of it in tests.
"""

from __future__ import annotations

import os
import time
from typing import Dict, List, NamedTuple, Optional

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
SHORT = 4096


class Stat(NamedTuple):
    """The fields of `/proc/PID/stat` that are used, named as proc(5) does."""

    pid: int
    comm: str
    state: str
    ppid: int
    pgrp: int
    session: int
    tty: int
    tpgid: int
    utime: int
    stime: int
    num_threads: int
    start_ticks: int
    rss_pages: int
    exit_code: Optional[int]

    @property
    def cpu_ticks(self) -> int:
        """User plus system time of all threads, dead ones included, in ticks."""
        return self.utime + self.stime


def read_bytes(path: str, limit: int = 65536) -> Optional[bytes]:
    """At most `limit` bytes of a file; None when it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        parts = []
        while limit > 0:
            part = os.read(descriptor, min(limit, 65536))
            if not part:
                break
            parts.append(part)
            limit -= len(part)
        return b"".join(parts)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def read_text(path: str, limit: int = 65536) -> Optional[str]:
    """As `read_bytes`, decoded with replacement."""
    data = read_bytes(path, limit)
    return None if data is None else data.decode("utf-8", "replace")


def read_link(path: str) -> Optional[str]:
    """Where a link points; None when it cannot be read."""
    try:
        return os.readlink(path)
    except OSError:
        return None


def parse_stat(text: str) -> Stat:
    """One `/proc/PID/stat` line.

    The name may hold blanks and brackets: split after the last `)`.

    Raises:
        ValueError: too few fields, or not numbers.
    """
    opening, closing = text.find("("), text.rfind(")")
    if opening < 0 or closing < opening:
        raise ValueError(f"stat: no name in brackets: {text[:80]!r}")
    rest = text[closing + 1 :].split()
    if len(rest) < 22:
        raise ValueError(f"stat: {len(rest)} fields after the name, expected 22 or more")
    return Stat(
        pid=int(text[:opening]),
        comm=text[opening + 1 : closing],
        state=rest[0],
        ppid=int(rest[1]),
        pgrp=int(rest[2]),
        session=int(rest[3]),
        tty=int(rest[4]),
        tpgid=int(rest[5]),
        utime=int(rest[11]),
        stime=int(rest[12]),
        num_threads=int(rest[17]),
        start_ticks=int(rest[19]),
        rss_pages=int(rest[21]),
        exit_code=int(rest[49]) if len(rest) > 49 else None,
    )


def read_stat(root: str, pid: int) -> Optional[Stat]:
    """The process's own line; None when it is gone or garbled."""
    text = read_text(f"{root}/{pid}/stat", SHORT)
    if not text:
        return None
    try:
        return parse_stat(text)
    except ValueError:
        return None


def parse_pairs(text: str) -> Dict[str, str]:
    """`Key: value` lines, as `status`, `io`, `fdinfo` and `meminfo` have them."""
    pairs = {}
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if colon:
            pairs[key.strip()] = value.strip()
    return pairs


def read_number(directory: str, name: str) -> Optional[int]:
    """The number that a file holds alone; None for another word (`max`) or no file."""
    text = (read_text(directory + "/" + name, 64) or "").strip()
    return int(text) if text.isdigit() else None


def read_keyed(directory: str, name: str, key: str) -> Optional[int]:
    """The number behind this word in a file of lines of two words."""
    for line in (read_text(directory + "/" + name, SHORT) or "").splitlines():
        words = line.split()
        if len(words) == 2 and words[0] == key and words[1].isdigit():
            return int(words[1])
    return None


def inner_numbers(status: str) -> List[int]:
    """Of a process or thread in each PID namespace, that of this `/proc` first; empty when gone.

    Args:
        status: path of its `status` file.
    """
    text = read_text(status, 8192) or ""
    place = text.find("NSpid:")
    words = text[place + 6 :].partition("\n")[0].split() if place >= 0 else []
    return [int(word) for word in words if word.isdigit()]


def kernel_functions(path: str, most: int) -> List[str]:
    """Where in the kernel it is held, innermost first; empty where only root may know.

    Args:
        path: of a process's or thread's `stack` file.
        most: functions.
    """
    lines = (read_text(path, 8192) or "").splitlines()
    names = (line.partition("] ")[2].partition("+")[0] for line in lines)
    return [name for name in names if name][:most]


def list_pids(root: str) -> List[int]:
    """Every process under `root`; empty when it cannot be listed."""
    try:
        return [int(name) for name in os.listdir(root) if name.isdigit()]
    except OSError:
        return []


def hides_others(root: str) -> bool:
    """Is `/proc` mounted so that strangers' processes are not even listed."""
    return not os.path.exists(root + "/1")


def list_fds(root: str, pid: int) -> Optional[List[int]]:
    """Open descriptors, sorted; None when not allowed or gone."""
    try:
        return sorted(int(name) for name in os.listdir(f"{root}/{pid}/fd") if name.isdigit())
    except OSError:
        return None


def is_python(exe: Optional[str], comm: str, argv: List[str]) -> bool:
    """Does this look like a Python interpreter: by its binary, else by its words."""
    names = [os.path.basename((exe or "").replace(" (deleted)", ""))]
    if not exe:
        names += [comm, os.path.basename(argv[0]) if argv else ""]
    return any(name.startswith(("python", "pypy")) for name in names)


def boot_s() -> float:
    """CLOCK_BOOTTIME: the clock that start ticks count on, in seconds."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def age_s(start_ticks: int, now_boot_s: float) -> Optional[float]:
    """CLOCK_BOOTTIME minus start ticks; None when that cannot be (an artefact, not an age).

    `/proc/uptime` is not used: lxcfs rewrites it.
    """
    age = now_boot_s - start_ticks / TICKS_PER_S
    return round(age, 2) if -0.05 <= age <= now_boot_s + 0.05 else None
