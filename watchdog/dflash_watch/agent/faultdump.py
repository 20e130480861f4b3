"""Stacks by the run's own faulthandler: a signal, sent only to a process that is ready for it.

A process without a handler dies of such a signal. So four things must agree: run.json declares the
signal, the kernel says that the process catches it, the process has the declared file open, and
nobody has stopped or traces it.
"""

from __future__ import annotations

import os
import re
import time
from typing import Any, Dict, List, Optional

from dflash_watch.agent import dumps, proc
from dflash_watch.agent.dumps import Dump
from dflash_watch.agent.frames import Room, frame
from dflash_watch.agent.means import Declared

NAME = "faulthandler"
FIRST_S, QUIET_S = 3.0, 0.15
"""The dump begins within so long; it is over when nothing more came for so long."""
MAX_DUMP_BYTES = 4 << 20
MOST_THREADS = 100
"""faulthandler itself shows no more."""
_HEAD = re.compile(
    r"^(?:Current thread|Thread) 0x([0-9a-f]+)(?: \[(.*)\])? \(most recent call first\):"
)
_FRAME = re.compile(r'^  File "(.*)", line (\d+|\?\?\?) in (.*)$')


def dump(root: str, pid: int, declared: Optional[Declared], start_ticks: int) -> Dump:
    """One dump, where everything agrees; else why no signal was sent.

    Args:
        root: `/proc`.
        pid: the process.
        declared: out of run.json.
        start_ticks: of the process that is meant: a number may have a new owner.
    """
    if declared is None:
        return Dump(None, "run.json declares no signal for it")
    place = _place(root, pid, declared)
    if place is None:
        name = declared.path or "standard error"
        return Dump(None, f"run.json names {name}, which the process does not have open as a file")
    try:
        descriptor = os.open(place, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        return Dump(None, f"{declared.path or 'standard error'} cannot be read: {error.strerror}")
    try:
        begin = os.fstat(descriptor).st_size
        refused = refusal(root, pid, declared.number, start_ticks)
        if refused is None:
            refused = _send(pid, declared.number)
        if refused is not None:
            return Dump(None, refused)
        text = _read_growth(descriptor, begin)
    finally:
        os.close(descriptor)
    did = (f"sent signal {declared.number}, which run.json declares for faulthandler",)
    return parse(text)._replace(did=did)


def refusal(root: str, pid: int, number: int, start_ticks: int) -> Optional[str]:
    """Why the signal must not be sent; None when it may."""
    stat = proc.read_stat(root, pid)
    pairs = proc.parse_pairs(proc.read_text(f"{root}/{pid}/status", 8192) or "")
    if stat is None or stat.start_ticks != start_ticks or "SigCgt" not in pairs:
        return "the process has gone"
    if not int(pairs["SigCgt"], 16) >> (number - 1) & 1:
        return f"run.json declares signal {number}, but the process does not catch it: it would die"
    if stat.state in "TtZX":
        return f"the process is in state {stat.state}: it would not see signal {number}"
    if pairs.get("TracerPid", "0") != "0":
        return f"process {pairs['TracerPid']} traces it and would get the signal instead"
    return None


def _send(pid: int, number: int) -> Optional[str]:
    try:
        os.kill(pid, number)
    except OSError as error:
        return f"signal {number} cannot be sent: {error.strerror}"
    return None


def _place(root: str, pid: int, declared: Declared) -> Optional[str]:
    """The descriptor through which the process writes its dumps; None when it has none.

    Other processes of a run than the first write beside the declared file: `stacks-1.txt`.
    """
    if declared.path is None:
        link = proc.read_link(f"{root}/{pid}/fd/2") or ""
        return f"{root}/{pid}/fd/2" if link.startswith("/") and _is_file(root, pid, 2) else None
    stem, suffix = os.path.splitext(declared.path)
    wanted = re.compile(re.escape(stem) + r"(?:-\d+)?" + re.escape(suffix) + r"(?: \(deleted\))?")
    for number in proc.list_fds(root, pid) or ():
        link = proc.read_link(f"{root}/{pid}/fd/{number}") or ""
        if wanted.fullmatch(link) and _is_file(root, pid, number):
            return f"{root}/{pid}/fd/{number}"
    return None


def _is_file(root: str, pid: int, number: int) -> bool:
    """A regular file: a terminal or a pipe would have to be read away from its reader."""
    try:
        return (os.stat(f"{root}/{pid}/fd/{number}").st_mode & 0o170000) == 0o100000
    except OSError:
        return False


def _read_growth(descriptor: int, begin: int) -> str:
    """What is added to the file from `begin` on, until it rests."""
    started_s = grew_s = time.monotonic()
    size = begin
    while True:
        now_s = time.monotonic()
        newest = os.fstat(descriptor).st_size
        if newest > size:
            size, grew_s = newest, now_s
        limit_s = QUIET_S if size > begin else FIRST_S
        if now_s - grew_s > limit_s or now_s - started_s > FIRST_S or size - begin > MAX_DUMP_BYTES:
            break
        time.sleep(0.02)
    data = os.pread(descriptor, min(size - begin, MAX_DUMP_BYTES), begin)
    return data.decode("utf-8", "replace")


def parse(text: str) -> Dump:
    """Threads out of its text, the last dump in it: innermost frame first, the main thread last."""
    threads: List[Dict[str, Any]] = []
    room, notes = Room(), []  # type: Room, List[str]
    for line in text.splitlines():
        head = _HEAD.match(line)
        if head:
            ident = int(head.group(1), 16)
            if any(thread["ident"] == ident for thread in threads):
                threads, room = [], Room()
            threads.append({"tid": None, "ident": ident, "name": head.group(2), "frames": []})
            continue
        found = _FRAME.match(line)
        if found and threads:
            file, number, name = found.groups()
            threads[-1]["frames"].append(frame(name, file, int(number) if number != "???" else 0))
        elif threads and line.strip() == "Garbage-collecting":
            threads[-1]["in_gc"] = True
    if not threads:
        return Dump(None, f"nothing came within {FIRST_S:g} s of the signal", dumps.SLOW)
    for thread in threads:
        thread["frames"] = room.fit(thread["frames"])
    if len(threads) >= MOST_THREADS:
        notes.append(f"faulthandler shows the newest {MOST_THREADS} threads only")
    note = "; ".join(filter(None, [room.note(), *notes])) or None
    return Dump(threads, note=note, raw=dumps.parts_of(text.splitlines()))


def main_of(threads: List[Dict[str, Any]]) -> Optional[int]:
    """The main thread's address: faulthandler shows it last, or not at all where there are many."""
    return threads[-1]["ident"] if 0 < len(threads) < MOST_THREADS else None
