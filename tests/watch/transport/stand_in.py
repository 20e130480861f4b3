"""A tiny agent that speaks the wire of docs/frames.md, and a watcher's end to hold it with.

The way there and back is tested with it, whatever the real agent can do.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dflash_watch.clock import SystemClock
from dflash_watch.frame import Frame, LinkChange, Record
from dflash_watch.place import Place, TargetChoice
from dflash_watch.session import Session
from dflash_watch.transport.ask import ask_nobody
from dflash_watch.transport.program import Program

MARK = os.environ.get("DFLASH_STAND_IN") or f"dflash-stand-in-{os.getpid()}"
"""Last word of its command line; other test sessions on this machine have another."""

_STUB = """
import os
def take(n):
    b = b""
    while len(b) < n:
        p = os.read(0, n - len(b))
        if not p: os._exit(98)
        b += p
    return b
h = b""
while not h.endswith(b"\\n"): h += take(1)
n, m = map(int, h.split())
code, config = take(n), take(m)
exec(code)
"""

_CODE = r"""
import json, os, select, sys, time, zlib
conf = json.loads(config)
pack = zlib.compressobj()
count = [0]
def say(record):
    body = pack.compress(json.dumps(record).encode()) + pack.flush(zlib.Z_SYNC_FLUSH)
    count[0] += 1
    data = b"\nDFLASH %s %d %d\n" % (conf["nonce"].encode(), count[0], len(body)) + body
    while data: data = data[os.write(1, data):]
say({"type": "hello", "protocol": conf["protocol"], "agent_version": "0", "python": "3",
     "hostname": os.uname().nodename, "agent_pid": os.getpid(), "uid": os.getuid(),
     "machine": os.uname().machine, "tools": {"py-spy": None}})
seq, due, every, kept = 0, time.monotonic(), conf["every_s"], {}
while True:
    now = time.monotonic()
    if now >= due:
        run = {"state": "none", "how": "newest"}
        say({"type": "frame", "seq": seq, "t": time.time(), "boot_s": now, "run": run})
        seq, due = seq + 1, now + every
    if not select.select([0], [], [], max(0, due - now))[0]: continue
    size = b""
    while not size.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte: sys.exit(0)
        size += byte
    ask = json.loads(take(int(size)))
    reply = {"type": "reply", "id": ask["id"], "ok": True}
    if ask["op"] == "tool": kept[ask["name"]] = take(ask["bytes"])
    if ask["op"] == "pace": every, due = ask["every_s"], now
    if ask["op"] == "stacks":
        if ask.get("can_push") and not kept: reply.update(ok=False, error="needs py-spy")
        elif ask["pid"] < 0: reply.update(ok=False, error="no such process")
        else:
            raw = str({k: len(v) for k, v in kept.items()})
            say({"type": "stacks", "t": 0.0, "pid": ask["pid"], "label": ask["label"],
                 "tool": "py-spy", "raw": raw})
    if ask["op"] == "stop": sys.exit(0)
    say(reply)
"""


def stand_in() -> Program:
    """The program; its process carries `MARK` on its command line."""
    script = f"exec python3 -c '{_STUB}' {MARK}"
    return Program(script=script, code=_CODE.encode(), sha256="5" * 64)


class Watcher:
    """A session with everything that it has said."""

    def __init__(self, place: Place, program: Callable[[], Program], every_s: float) -> None:
        self.seen: list[Record] = []
        self.noted: list[tuple[str, str]] = []
        self.session = Session(
            place, TargetChoice(), every_s, SystemClock(), ask=ask_nobody, program=program,
            note=lambda action, outcome, **_: self.noted.append((action, outcome)),
        )  # fmt: skip

    def wait(self, wanted: Callable[[Record], bool], within_s: float = 90.0) -> Record:
        """The first record from now on that is wanted."""
        end_s = time.monotonic() + within_s
        while time.monotonic() < end_s:
            try:
                record = self.session.get(0.2)
            except EOFError as error:
                raise AssertionError(f"over: {self.seen[-3:]}") from error
            if record is None:
                continue
            self.seen.append(record)
            if wanted(record):
                return record
        raise AssertionError(f"did not come within {within_s} s; seen: {self.seen[-6:]}")

    def frames(self, count: int) -> list[Frame]:
        """The next frames."""
        return [record for _ in range(count) if isinstance(record := self.wait(is_frame), Frame)]

    def lost(self, words: str = "") -> LinkChange:
        """The next loss whose reason holds these words."""
        record = self.wait(
            lambda r: is_link(r, "lost") and words in (getattr(r, "reason", None) or "")
        )
        assert isinstance(record, LinkChange)
        return record

    def closed(self) -> LinkChange:
        """The end of all attempts."""
        record = self.wait(lambda r: is_link(r, "closed"))
        assert isinstance(record, LinkChange)
        return record


def is_frame(record: Record) -> bool:
    """A look at the run."""
    return isinstance(record, Frame)


def is_link(record: Record, state: str) -> bool:
    """A change of the way to this state."""
    return isinstance(record, LinkChange) and record.state == state


@contextmanager
def watching(
    place: Place, program: Callable[[], Program] = stand_in, every_s: float = 0.2
) -> Iterator[Watcher]:
    """A session for the body, closed at its end."""
    watcher = Watcher(place, program, every_s)
    try:
        yield watcher
    finally:
        watcher.session.close()
