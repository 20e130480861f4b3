"""Stacks as other tools print them: text with any number of dumps becomes StackSamples.

py-spy (text and `--json`), faulthandler, gdb (`bt`, `py-bt`), pystack, `/proc/PID/stack`; anything
around them allowed, ranks that print into one another kept apart by their prefixes. One line costs
time linear in its length; memory is bounded by the limits below.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from dflash_watch.frame import StackFrame, StackSample, ThreadStack
from dflash_watch.readers.lines import printable
from dflash_watch.readers.prefix import split_prefix
from dflash_watch.readers.stackdump import DumpBuilder

DUMP_LIMIT = 512
"""Dumps kept of one text: the first half of them and the newest half."""
JSON_LINES = 2_000_000
"""Lines that one block of py-spy's JSON may have."""

_RANK_TOLD = re.compile(
    r"(?i)\W{0,8}(?:stacks? of )?rank[ _:=#-]{0,3}(\d{1,6})\W{0,4}(?:pid\W{0,3}(\d{1,10}))?"
    r"\W{0,4}(?:stacks?|dump)?\W{0,8}$"
)
_PROCESS_TIMED_OUT = re.compile(r"Process (\d{1,6}) timed out")
_PID_ASKED = re.compile(
    r"(?:py-spy dump|pystack remote|gdb)\b.{0,80}?(?:-p|--pid[ =]?| remote)[ =]?(\d{1,10})\b"
)
_SPY_PROCESS = re.compile(r"Process (\d{1,10}): ?(.{0,400})")
_GDB_PROCESS = re.compile(r"(?:Attaching to |\[Inferior \d{1,4} \()process (\d{1,10})")


class Dumps(msgspec.Struct, frozen=True, kw_only=True):
    """All dumps of a text, in the order in which they began."""

    samples: tuple[StackSample, ...] = ()
    unread: int = 0
    """Lines inside dumps that no format knows."""
    unread_lines: tuple[str, ...] = ()
    """The first of them, as they stand."""
    left_out: int = 0
    """Dumps dropped because the text has more than DUMP_LIMIT."""


def parse_stacks(
    text: str, *, t: float = 0.0, pid: int = 0, label: str = "given"
) -> StackSample | None:
    """The first dump that the text holds, or None when it holds none.

    Args:
        text: any tool's output, anything around it allowed.
        t: moment to stamp on it, seconds.
        pid: process, where the text does not say.
        label: label of the sample.
    """
    samples = parse_dumps(text, t=t, pid=pid, label=label).samples
    return samples[0] if samples else None


def parse_dumps(
    text: str, *, t: float = 0.0, pid: int = 0, rank: int | None = None, label: str = "given"
) -> Dumps:
    """All dumps that the text holds.

    Args:
        text: any mixture of tools, processes and ranks.
        t: moment to stamp on them, seconds.
        pid: process, where the text does not say.
        rank: rank, where the text does not say.
        label: label of the samples.
    """
    whole = _from_json(text)
    if whole:
        return Dumps(samples=tuple(_stamp(one, t, pid, rank, label) for one in whole))
    scanner = StackScanner(t=t, pid=pid, rank=rank, label=label)
    for line in text.splitlines():
        scanner.feed(line)
    return scanner.finish()


class StackScanner:
    """Dumps out of lines that come one by one, among anything else.

    Args:
        t: moment to stamp on them, seconds.
        pid: process, where the text does not say.
        rank: rank, where the text does not say.
        label: label of the samples.
    """

    def __init__(
        self, *, t: float = 0.0, pid: int = 0, rank: int | None = None, label: str = "given"
    ) -> None:
        self._stamps = (t, pid, rank, label)
        self._streams: dict[str, DumpBuilder] = {}
        self._done: list[StackSample] = []
        self._left_out = 0
        self._json: list[str] | None = None

    def feed(self, line: str) -> bool:
        """Take the next line, without its line end; True when it belongs to a dump."""
        line = printable(line[:8000])
        if self._json is not None or line.startswith("["):
            inside = self._json_line(line)
            if inside is not None:
                return inside
        prefix, body = split_prefix(line)
        stream = self._streams.get(prefix.key)
        if stream is None:
            if len(self._streams) >= 4096:
                return False
            stream = self._streams[prefix.key] = DumpBuilder(prefix.rank, prefix.pid)
        mine = stream.feed(body)
        if not mine and body:
            self._announced(stream, body)
        for sample in stream.take():
            self._keep(sample)
        return mine

    def finish(self) -> Dumps:
        """What was found, the dump at the end of the text included."""
        unread, lines = 0, []
        for stream in self._streams.values():
            stream.close()
            for sample in stream.take():
                self._keep(sample)
            unread += stream.unread
            lines += stream.unread_lines
        if self._json:
            for sample in _from_json("\n".join(self._json)):
                self._keep(sample)
        self._streams, self._json = {}, None
        return Dumps(
            samples=tuple(_stamp(one, *self._stamps) for one in self._done),
            unread=unread,
            unread_lines=tuple(lines[:20]),
            left_out=self._left_out,
        )

    def _keep(self, sample: StackSample) -> None:
        self._done.append(sample)
        if len(self._done) > DUMP_LIMIT:
            del self._done[DUMP_LIMIT // 2]
            self._left_out += 1

    def _announced(self, stream: DumpBuilder, line: str) -> None:
        """Whose stacks come next, where a line says so."""
        if found := _PROCESS_TIMED_OUT.match(line):
            stream.announce(rank=int(found.group(1)))
        elif found := _SPY_PROCESS.match(line):
            stream.announce(pid=int(found.group(1)), command=found.group(2).strip())
        elif found := _GDB_PROCESS.match(line) or _PID_ASKED.search(line[:400]):
            stream.announce(pid=int(found.group(1)))
        elif found := _RANK_TOLD.match(line[:200]):
            stream.announce(rank=int(found.group(1)), pid=int(found.group(2) or 0))
        elif line.startswith(("Timeout (", "Fatal Python error", "Dumping ", "Process ")):
            stream.announce()

    def _json_line(self, line: str) -> bool | None:
        """A line of py-spy's JSON: True inside, None when it is none."""
        if self._json is None:
            if line.startswith(('[{"pid"', '[{ "pid"')):
                for sample in _from_json(line):
                    self._keep(sample)
                return True
            if line.rstrip() != "[":
                return None
            self._json = [line]
            return True
        self._json.append(line)
        if line.startswith("]"):
            lines, self._json = self._json, None
            for sample in _from_json("\n".join(lines)):
                self._keep(sample)
        elif len(self._json) > JSON_LINES or (len(self._json) == 2 and not line.startswith(" ")):
            self._json = None  # a bracket of something else
            return None
        return True


class _SpyFrame(msgspec.Struct):
    name: str = "?"
    filename: str | None = None
    line: int | None = None


class _SpyThread(msgspec.Struct):
    pid: int
    frames: list[_SpyFrame]
    thread_id: int | None = None
    thread_name: str | None = None
    os_thread_id: int | None = None
    active: bool | None = None
    owns_gil: bool | None = None


_SPY_JSON = msgspec.json.Decoder(list[_SpyThread])


def _from_json(text: str) -> list[StackSample]:
    """Samples of py-spy's `--json`, one a process; none when it is something else."""
    if not text.lstrip("\ufeff \t\r\n").startswith("["):
        return []
    try:
        threads = _SPY_JSON.decode(text.strip("\ufeff \t\r\n").encode("utf-8", "replace"))
    except (msgspec.DecodeError, RecursionError):
        return []
    by_pid: dict[int, list[ThreadStack]] = {}
    for one in threads:
        by_pid.setdefault(one.pid, []).append(_json_thread(one))
    return [
        StackSample(t=0.0, pid=pid, label="", tool="py-spy", mode="unknown", threads=tuple(rows))
        for pid, rows in by_pid.items()
    ]


def _json_thread(one: _SpyThread) -> ThreadStack:
    return ThreadStack(
        tid=one.os_thread_id or one.thread_id,
        name=one.thread_name,
        frames=tuple(StackFrame(f.name, f.filename or "", f.line or 0) for f in one.frames[:500]),
        active=one.active,
        owns_gil=one.owns_gil or None,
    )


def _stamp(sample: StackSample, t: float, pid: int, rank: int | None, label: str) -> StackSample:
    changes: dict[str, Any] = {"t": t, "label": label, "pid": sample.pid or pid}
    if sample.rank is None:
        changes["rank"] = rank
    return msgspec.structs.replace(sample, **changes)
