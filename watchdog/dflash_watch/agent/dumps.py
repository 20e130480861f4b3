"""What one attempt at a stack dump gives, whoever made it; and what its failure means."""

from __future__ import annotations

import re
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from dflash_watch.agent.sampler import Ran

MAX_RAW_BYTES = 256 * 1024

NOT_ALLOWED = "not-allowed"
GONE = "gone"
NOT_PYTHON = "not-python"
UNKNOWN_PYTHON = "unknown-python"
TRACED = "traced"
OTHER_MACHINE = "other-machine"
TORN = "torn"
SLOW = "slow"


class Dump(NamedTuple):
    """Threads, or why there are none."""

    threads: Optional[List[Dict[str, Any]]]
    """As `frame.ThreadStack`, with `ident` (pthread_self) where only that is known."""
    error: Optional[str] = None
    """What was said, in short."""
    kind: Optional[str] = None
    """One of the words above; None: of no known kind."""
    note: Optional[str] = None
    raw: str = ""
    """The tool's text, where that is what was read."""
    did: Tuple[str, ...] = ()
    """What was done to the process beyond reading."""


class Meaning(NamedTuple):
    """A failure's words, and what to do about it."""

    pattern: str
    kind: str
    text: str


# py-spy's and pystack's words; the first that fits.
MEANINGS: Tuple[Meaning, ...] = (
    Meaning(r"Exec format error|os error 8\b|Errno 8\b", OTHER_MACHINE,
            "this sampler is built for another machine type"),
    Meaning(r"Permission denied|Operation not permitted|elevated permissions|os error 13"
            r"|os error 1\b", NOT_ALLOWED, "not allowed to look into the process"),
    Meaning(r"Failed to suspend|unexpected waitpid|Could not attach|already being traced", TRACED,
            "another tool traces or has stopped it: see TracerPid in /proc/PID/status, end that"),
    Meaning(r"gil_thread_id|Unsupported version|free.?threaded|not a supported|"
            r"Version .{0,20}not supported", UNKNOWN_PYTHON,
            "this Python is free-threaded or too new for this sampler: use a newer one, or let the"
            " run arm faulthandler"),
    Meaning(r"python interpreter in the|interpreter state|PyInterpreterState|_PyRuntime",
            UNKNOWN_PYTHON, "its version was read but not its state: a stripped or unusual build,"
            " or a sampler of the host's looking into a container"),
    Meaning(r"Failed to find python version|not a Python process|Couldn.t find libpython"
            r"|No python processes found|determine the Python version", NOT_PYTHON,
            "not a Python process, or an unusual build of Python"),
    Meaning(r"No such file|No such process|os error [23]\b|process .{0,20}not found", GONE,
            "the process is gone, or its number is another PID namespace's"),
)  # fmt: skip


def meaning_of(said: str) -> Optional[Meaning]:
    """The first meaning that fits these words."""
    return next((one for one in MEANINGS if re.search(one.pattern, said, re.IGNORECASE)), None)


def failed(said: str) -> Dump:
    """An attempt that a sampler's own words ended."""
    found = meaning_of(said)
    short = shorten(said)
    if found is None:
        return Dump(None, short or "it said nothing")
    return Dump(None, f"{found.text} ({short})", found.kind)


def cut_short(ran: Ran, limit_s: float) -> Optional[Dump]:
    """What is wrong with how a sampler ended; None when nothing is, and its output counts."""
    if ran.problem == "start":  # the words are about the sampler, not about the process
        dump = failed(f"cannot be started: {ran.said}")
        if dump.kind != OTHER_MACHINE:
            return Dump(None, f"cannot be started: {shorten(ran.said)}")
        return dump
    if ran.problem == "time":
        return Dump(None, f"no answer in {limit_s:g} s, ended", SLOW)
    if ran.code not in (0, None):
        return failed(ran.said or f"ended with {ran.code} and said nothing")
    return None


def shorten(said: str, most: int = 240) -> str:
    """One line of what was said; frames of a Rust backtrace left out."""
    head = re.split("[Ss]tack backtrace:", said, maxsplit=1)[0]
    return re.sub(r"\s+", " ", head).strip()[:most]


def parts_of(lines: Sequence[str]) -> str:
    """Text of a tool within its bound."""
    text = "\n".join(lines)
    return text if len(text) <= MAX_RAW_BYTES else text[:MAX_RAW_BYTES] + "\n... cut"
