"""What `ps` and `top -b` printed, whatever the columns; and when their clocks must not be believed.

`%CPU` of ps is an average over the whole life of a process, so it proves neither work nor idleness.
In a container with lxcfs, procps 4.0 prints an age of 441077234 days and 0.0 for every process:
recognised, explained, and left out of the values.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from dflash_watch.readers.lines import printable
from dflash_watch.readers.psclock import ClockArtefact, artefact_of, is_age, parse_age

LINE_LIMIT = 4000
LINES_LIMIT = 100_000

_COLUMNS = {
    "PID": "pid", "TGID": "pid", "PPID": "ppid", "LWP": "tid", "SPID": "tid", "TID": "tid",
    "USER": "user", "UID": "user", "EUSER": "user", "RUSER": "user",
    "STAT": "state", "S": "state", "WCHAN": "wchan",
    "%CPU": "cpu_percent", "PCPU": "cpu_percent", "C": "cpu_percent", "CPU%": "cpu_percent",
    "%MEM": "memory_percent", "PMEM": "memory_percent", "MEM%": "memory_percent",
    "RSS": "rss", "RES": "rss", "RSZ": "rss",
    "ELAPSED": "elapsed", "ETIME": "elapsed", "ETIMES": "elapsed",
    "TIME": "cpu_time", "TIME+": "cpu_time", "NLWP": "num_threads", "THCNT": "num_threads",
    "START": "started", "STARTED": "started", "STIME": "started",
    "COMMAND": "command", "CMD": "command", "ARGS": "command",
}  # fmt: skip
_STATE = re.compile(r"[RSDTtZXI][<NLsl+]{0,5}$")
_FLOAT = re.compile(r"\d{1,5}\.\d{1,2}$")
_AUX = re.compile(
    r"\S{1,32}\s{1,20}\d{1,10}\s{1,8}\d{1,5}\.\d\s{1,8}\d{1,3}\.\d\s{1,12}\d{1,16}\s{1,12}\d{1,16}\s"
)
_EF = re.compile(
    r"\S{1,32}\s{1,20}\d{1,10}\s{1,12}\d{1,10}\s{1,8}\d{1,3}\s{1,8}[\w:]{5,8}\s{1,4}\S{1,8}\s"
)
_AUX_COLUMNS = [
    "user", "pid", "cpu_percent", "memory_percent", "-", "rss", "-", "state", "started", "cpu_time",
    "command",
]  # fmt: skip
_EF_COLUMNS = ["user", "pid", "ppid", "cpu_percent", "started", "-", "cpu_time", "command"]
_WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_UNITS = {"k": 1, "m": 1 << 10, "g": 1 << 20, "t": 1 << 30}


class PsRow(msgspec.Struct, frozen=True, kw_only=True):
    """One process, or one thread where the table lists threads; None is not shown or absurd."""

    pid: int | None
    """None in `top -H`, whose PID column counts threads."""
    tid: int | None = None
    ppid: int | None = None
    user: str | None = None
    state: str | None = None
    """All letters, e.g. `Sl+`; the first is the state."""
    wchan: str | None = None
    cpu_percent: float | None = None
    """Of ps: the average over its life. None where the clock is an artefact."""
    memory_percent: float | None = None
    rss_bytes: int | None = None
    elapsed_s: float | None = None
    cpu_s: float | None = None
    """Processor time used so far: two samples of it tell whether work goes on."""
    started: str | None = None
    num_threads: int | None = None
    command: str = ""
    artefact: ClockArtefact | None = None
    """Why its age and %CPU were left out."""


class PsText(msgspec.Struct, frozen=True, kw_only=True):
    """All rows of a text."""

    rows: tuple[PsRow, ...] = ()
    tool: str = "none"
    """`ps`, `top`, `none`."""
    lists_threads: bool = False
    artefact: ClockArtefact | None = None
    """Of the first row that has one; each row keeps its own."""
    guessed: bool = False
    """Columns named without a head."""
    unread: tuple[str, ...] = ()
    """First lines below a head that do not fit it."""


def parse_ps(text: str) -> PsText:
    """Rows of all tables in the text; none where it holds none.

    Args:
        text: output of ps or `top -b`, anything around it allowed.
    """
    rows: list[PsRow] = []
    unread: list[str] = []
    columns: list[str] | None = None
    tool, threads, guessed = "none", False, False
    for raw in text.split("\n", LINES_LIMIT)[:LINES_LIMIT]:
        line = printable(raw[:LINE_LIMIT]).removeprefix("> ").rstrip()
        head = _head(line)
        if head is not None:
            columns, tool = head, "top" if "TIME+" in line else "ps"
            threads = threads or "tid" in columns
            continue
        if line.startswith("Threads:"):
            threads = True
        fitting = columns or _without_head(line)
        if not line.strip() or fitting is None:
            columns = columns if line.strip() else None
            continue
        made = _row(line, fitting, top_threads=tool == "top" and threads)
        if made is None:
            unread += [line[:200]] if columns and len(unread) < 20 else []
            continue
        rows.append(made)
        guessed = guessed or columns is None
        tool = "ps" if tool == "none" else tool
    return PsText(
        rows=tuple(rows),
        tool=tool if rows else "none",
        lists_threads=threads,
        artefact=next((row.artefact for row in rows if row.artefact), None),
        guessed=guessed,
        unread=tuple(unread),
    )


def _head(line: str) -> list[str] | None:
    """Columns of a head line, each by the name it has here; None for any other line."""
    words = line.split()
    known = [word for word in words if word in _COLUMNS]
    if not {"PID", "LWP", "SPID", "TID"} & set(words) or len(known) < 2 or len(words) > 40:
        return None
    return [_COLUMNS.get(word, "-") for word in words] if line.upper() == line else None


def _without_head(line: str) -> list[str] | None:
    """Columns of a line that was cut out of a table (`ps aux | grep python`)."""
    if _AUX.match(line):
        return _AUX_COLUMNS
    if _EF.match(line):
        return _EF_COLUMNS
    words = line.split(None, 8)
    if len(words) < 3 or not words[0].isdecimal() or not any(is_age(word) for word in words):
        return None
    columns, floats = ["pid"], ["cpu_percent", "memory_percent"]
    for word in words[1:]:
        if is_age(word) and "elapsed" not in columns:
            columns.append("elapsed")
        elif _FLOAT.match(word) and floats:
            columns.append(floats.pop(0))
        elif _STATE.match(word) and "state" not in columns:
            columns.append("state")
        else:
            break
    return [*columns, "command"] if len(columns) > 2 else None


def _row(line: str, columns: Sequence[str], *, top_threads: bool) -> PsRow | None:
    words = _cells(line, columns)
    if words is None:
        return None
    named = dict(zip(columns, words, strict=True))
    number = named.get("pid", named.get("tid", ""))
    if not number.isdecimal() or len(number) > 10:
        return None
    elapsed_s, cpu_s = parse_age(named.get("elapsed", "")), parse_age(named.get("cpu_time", ""))
    cpu_percent = _number(named.get("cpu_percent"))
    artefact = artefact_of(elapsed_s, cpu_s, cpu_percent, named.get("started", ""))
    state, wchan = named.get("state", ""), named.get("wchan", "-")
    return PsRow(
        pid=None if top_threads else _whole(named.get("pid")),
        tid=_whole(number if top_threads else named.get("tid")),
        ppid=_whole(named.get("ppid")),
        user=named.get("user"),
        state=state if _STATE.match(state) else None,
        wchan=None if wchan in ("-", "0", "*", "") else wchan,
        cpu_percent=None if artefact else cpu_percent,
        memory_percent=_number(named.get("memory_percent")),
        rss_bytes=_kib(named.get("rss")),
        elapsed_s=None if artefact else elapsed_s,
        cpu_s=cpu_s,
        started=named.get("started"),
        num_threads=_whole(named.get("num_threads")),
        command=named.get("command", "").lstrip("\\_| ")[:1000],
        artefact=artefact,
    )


def _cells(line: str, columns: Sequence[str]) -> list[str] | None:
    """One word a column, the rest of the line for the last; `lstart` has five words."""
    words = line.split()
    place = columns.index("started") if "started" in columns else -1
    if 0 <= place < len(words) and words[place] in _WEEKDAYS and len(words) > place + 4:
        joined = " ".join(words[place : place + 5])
        words = [*words[:place], joined, *words[place + 5 :]]
    if len(words) < len(columns):
        return None
    last = len(columns) - 1
    return [*words[:last], " ".join(words[last:])]


def _whole(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() and len(text) < 16 else None


def _number(text: str | None) -> float | None:
    if text is None or not re.fullmatch(r"\d{1,8}(?:[.,]\d{1,4})?", text):
        return None
    return float(text.replace(",", "."))


def _kib(text: str | None) -> int | None:
    """Bytes of a memory column: KiB, in top also `12.3g`."""
    found = re.fullmatch(r"(\d{1,15}(?:[.,]\d{1,4})?)([kmgt]?)", text or "")
    if found is None:
        return None
    return round(float(found.group(1).replace(",", ".")) * _UNITS[found.group(2) or "k"] * 1024)
