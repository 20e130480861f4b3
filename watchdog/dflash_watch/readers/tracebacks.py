"""Tracebacks put together from lines, also when threads or ranks print into one another.

Per rank prefix one assembler. Headings (`Exception in thread X:`, `target 2 DIED OutOfMemoryError`)
wait for the traceback that belongs to them, first come first served, because that is the order
in which threads that share a stream usually print.
"""

from __future__ import annotations

import re
from collections import deque

import msgspec

from dflash_watch.readers.prefix import split_prefix
from dflash_watch.readers.words import worker_in

TEXT_LINES = 200
"""Lines kept of one traceback: all at first, then the newest."""
JUNK_LINES = 3
"""Lines that may stand between a heading and its frames."""
CUT_AFTER = 3
"""Looks that bring nothing after which a traceback counts as cut."""
OPEN_LIMIT = 16
"""Headings and tracebacks waiting at once."""

_START = re.compile(r"Traceback \(most recent call last\):?\s*$")
_THREAD = re.compile(r".*Exception in thread (.{1,120}?):?\s*$")
_BARE_NAME = re.compile(r"^([\w][^:]{0,80}):\s*$")
_PROCESS = re.compile(r"^Process (\S{1,80}):\s*$")
_IGNORED = re.compile(r"^(?:Exception ignored in|Error in atexit)\b")
_HEADING = re.compile(
    r"(?i)(?<![a-z])(?:target|drafter|draft|worker|loader|rank|thread)[ _#-]?\d{1,5}\b.{0,40}?"
    r"\b(?:died|dies|crashed|raised|failed|exception)\b"
)
_HEADING_WORDS = ("died", "dies", "crashed", "raised", "failed", "exception")
_TYPE = re.compile(r"\b([A-Z]\w{0,60}(?:Error|Exception|Exit|Interrupt|OutOfResources))\b")
_FRAME = re.compile(r'^\s{0,8}(?:[|+] )?File "[^"]{0,500}"(?:, line \d+)?, in ')
_CUT_FRAME = re.compile(r'", line \d+, in \S+$|^\s?in \S+\s*$')
_ENDS = re.compile(
    r"^(?:\s*\| )?((?:[A-Za-z_]\w{0,60}\.){0,10}([A-Z]\w{0,80}|_queue\.Empty))(?::(?: (.*))?)?$"
)
_CHAIN = re.compile(
    r"^(?:During handling of the above exception, another exception occurred|"
    r"The above exception was the direct cause of the following exception):$"
)
_CAUGHT = re.compile(
    r"(?i)(?:error|exception|fail|warn).{0,200}"
    r"\b(?:ignor(?:ed|ing)|skipp(?:ed|ing)|retry(?:ing)?|falling back|continuing)\b"
)
_CERTAIN = re.compile(r"(?i)\b(?:died|crashed)\b")
_MODULE = re.compile(r"in <module>$")


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """A traceback as far as it has come."""

    subject: str
    exception: str
    message: str
    text: str
    thread: str | None
    rank: int | None
    fatal: bool
    mixed: bool
    line: int
    """Of the log, where it began."""


class _Open:
    """A heading or a traceback being read."""

    def __init__(self, line: int, *, thread: str | None = None, subject: str | None = None) -> None:
        self.thread, self.subject, self.line = thread, subject, line
        self.exception: str | None = None
        self.message = ""
        self.lines: list[str] = []
        self.fatal = True
        self.mixed = False
        self.began = False  # frames were seen
        self.ended = False  # the exception line was seen
        self.adjacent = False  # the line before belongs to it
        self.junk = 0
        self.told = 0  # lines already handed out
        self.waited = 0  # looks since it grew

    def ends(self, line: str) -> bool:
        """Take the line if it is the exception that ends the frames."""
        found = _ENDS.match(line)
        if not found or not (self.adjacent or _TYPE.match(found.group(2))):
            return False
        self.exception, self.message = found.group(2), found.group(3) or ""
        self.ended = True
        self.add(line)
        return True

    def add(self, line: str) -> None:
        self.adjacent = True
        self.waited = 0
        self.lines.append(line)
        if len(self.lines) > TEXT_LINES:
            del self.lines[TEXT_LINES // 4 + 1]


class Tracebacks:
    """Lines in, whole tracebacks out.

    Attributes:
        busy: a traceback is being read, so the next line may belong to it.
    """

    def __init__(self) -> None:
        self._by_key: dict[str, _Stream] = {}

    def feed(self, line: str, number: int = 0) -> tuple[bool, list[Told]]:
        """Whether the line belongs to a traceback, and what became whole by it.

        Args:
            line: without its end.
            number: of the line in its log.
        """
        prefix, body = split_prefix(line)
        stream = self._by_key.get(prefix.key)
        if stream is None:
            if len(self._by_key) >= 4096:
                return False, []
            stream = self._by_key[prefix.key] = _Stream(prefix.rank, prefix.name)
        stream.number = number
        return stream.feed(body)

    def flush(self, *, is_last: bool = False) -> list[Told]:
        """What is whole although its follow-up may still come; asked at the end of each piece.

        Args:
            is_last: no piece follows, so what was cut is told as well.
        """
        streams = self._by_key.values()
        return [told for stream in streams for told in stream.flush(is_last=is_last)]


class _Stream:
    """The assembler of one rank."""

    def __init__(self, rank: int | None, name: str = "") -> None:
        self.rank, self.name = rank, name
        self.open: deque[_Open] = deque(maxlen=OPEN_LIMIT)
        self.current: _Open | None = None
        self.before = ""
        self.number = 0  # of the line being read
        self.names_to_come = 0  # threads that printed their headings into one line

    def feed(self, line: str) -> tuple[bool, list[Told]]:
        before, self.before = self.before, line
        current = self.current
        if current is not None and not current.ended and current.ends(line):
            return True, []
        if self._heading(line):
            return True, []
        if _START.search(line):
            return True, self._start(line, before)
        if _FRAME.match(line) or ((current or self.open) and _CUT_FRAME.search(line)):
            return True, self._frame(line)
        return self._junk(line) if current is None else self._inside(current, line)

    def flush(self, *, is_last: bool) -> list[Told]:
        waiting = [*self.open, *([self.current] if self.current else [])]
        told = []
        for item in waiting:
            item.waited += 1
            # Frames that never end in an exception are told as far as they came.
            whole = item.exception or (item.began and (is_last or item.waited > CUT_AFTER))
            if whole and len(item.lines) > item.told:
                item.told = len(item.lines)
                told.append(self._tell(item))
        return told

    def _heading(self, line: str) -> bool:
        low = line.lower()
        thread = _THREAD.search(line) if "exception in thread" in low else _PROCESS.match(line)
        if thread is None and self.names_to_come:
            thread = _BARE_NAME.match(line)
            self.names_to_come -= thread is not None
        self.names_to_come += max(line.count("Exception in thread ") - 1, 0)
        if thread:
            item = _Open(self.number, thread=thread.group(1), subject=worker_in(thread.group(1)))
        elif _IGNORED.match(line):
            item = _Open(self.number)
            item.fatal = False
        elif (
            any(word in low for word in _HEADING_WORDS)
            and not line.startswith((" ", "\t"))
            and _HEADING.search(line)
        ):
            item = _Open(self.number, subject=worker_in(line) or _numbered(line))
            named = _TYPE.search(line)
            item.exception = (
                named.group(1) if named else "unknown" if _CERTAIN.search(line) else None
            )
        else:
            return False
        item.add(line)
        self.open.append(item)
        return True

    def _start(self, line: str, before: str) -> list[Told]:
        current = self.current
        if current is not None and current.ended and _CHAIN.match(_last_words(current)):
            current.ended = False
            current.add(line)
            return []
        done = self._close() if current is not None and current.ended else []
        cut_in = current is not None and not current.ended
        if current is not None and cut_in:
            current.mixed = True
            self.open.appendleft(current)
        waiting = next((item for item in self.open if not item.began), None)
        if waiting is not None:
            self.open.remove(waiting)
        self.current = waiting or _Open(self.number, subject=worker_in(before))
        self.current.fatal = self.current.fatal and not _CAUGHT.search(before)
        self.current.began = True
        self.current.mixed = self.current.mixed or cut_in
        self.current.add(line)
        return done

    def _frame(self, line: str) -> list[Told]:
        done: list[Told] = []
        if self.current is not None and self.current.ended:
            done = self._close()
        if self.current is None:
            self.current = self.open.popleft() if self.open else _Open(self.number)
        self.current.began = True
        self.current.add(line)
        return done

    def _junk(self, line: str) -> tuple[bool, list[Told]]:
        """Lines between a heading and its frames; too many, and the heading stands alone."""
        if not self.open or self.open[0].began or not line.strip():
            return False, []
        first = self.open[0]
        first.junk += 1
        if first.junk > JUNK_LINES:
            self.open.popleft()
            return False, [self._tell(first)] if first.exception and not first.told else []
        if line.startswith("    ") or line.rstrip().endswith(("^", "]")):
            first.add(line)
            return True, []
        return False, []

    def _inside(self, current: _Open, line: str) -> tuple[bool, list[Told]]:
        if current.ended:
            if _CHAIN.match(line) or (not line.strip() and current.lines[-1].strip()):
                current.add(line)
                return True, []
            return False, self._close()
        if line.startswith((" ", "\t", "+", "|", "[Previous")) or not line.strip():
            current.add(line)
            return True, []
        # Something else was printed in between: tolerated, it ends nothing by itself.
        current.adjacent = False
        current.junk += 1
        if current.junk > 50:
            self.current = None
        return False, []

    def _close(self) -> list[Told]:
        item, self.current = self.current, None
        if self.open and self.open[0].began:
            self.current = self.open.popleft()
        # Blank lines alone since it was told are nothing new.
        news = item is not None and any(line.strip() for line in item.lines[item.told :])
        return [self._tell(item)] if item is not None and news else []

    def _tell(self, item: _Open) -> Told:
        return Told(
            subject=item.subject or item.thread or self._presumed(item),
            exception=item.exception or "unknown",
            message=item.message[:1000],
            text="\n".join(item.lines).rstrip(),
            thread=item.thread,
            rank=self.rank,
            fatal=item.fatal,
            mixed=item.mixed,
            line=item.line,
        )

    def _presumed(self, item: _Open) -> str:
        if self.rank is not None:
            return f"rank-{self.rank}"
        if self.name:
            return self.name
        first = next((line for line in item.lines if _FRAME.match(line)), "")
        return "main" if _MODULE.search(first) else "unknown"


def _last_words(item: _Open) -> str:
    return next((line for line in reversed(item.lines) if line.strip()), "")


def _numbered(line: str) -> str | None:
    found = re.search(r"(?i)\b(rank|thread)[ _#-]?(\d{1,5})\b", line)
    return f"{found.group(1).lower()}-{int(found.group(2))}" if found else None
