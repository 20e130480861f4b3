"""Signatures of the playbooks in stacks, and in what a log ends with.

A living run can be looked at again, and its detectors do; of pasted evidence the place where a
thread stood, or the last line that was written, is all there is.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from dflash_watch.frame import StackSample, ThreadStack
from dflash_watch.model import Evidence, EvidenceKind, Severity, Source, Symptom
from dflash_watch.readers.facts import Signature
from dflash_watch.readers.signatures import Matcher
from dflash_watch.readers.stacks import label_of, leaf_of, short_file
from dflash_watch.readers.waits import is_helper, wait_reason
from dflash_watch.readers.waitwords import WAIT_WORDS
from dflash_watch.units import clipped

END_LINES = 12
"""Newest lines of a log that are its end."""
MOST_THREADS, MOST_PLACES = 2000, 6
OF_PYTHON = sys.stdlib_module_names
MUTUAL = frozenset({"lock", "queue-get", "queue-put", "peer"})
"""Waits that another thread of the same process has to end."""
WAITS = MUTUAL | {"join", "condition"}


class _Sign(msgspec.Struct, frozen=True):
    signature: Signature
    thread: str
    text: str


def signs_in_stacks(
    samples: Sequence[StackSample], signatures: Sequence[Signature], t: float
) -> Iterator[Symptom]:
    """`stacked-<failure>`, one a failure, with the threads that stand there."""
    matcher = Matcher(signatures, "stacks")
    seen: dict[str, list[_Sign]] = {}
    threads = [thread for sample in samples for thread in sample.threads if thread.frames]
    for thread in threads[:MOST_THREADS]:
        if is_helper(thread):
            continue
        for match in matcher.in_text(thread_text(thread)):
            sign = _Sign(match.signature, label_of(thread), match.text)
            seen.setdefault(match.signature.failure, []).append(sign)
    if not seen and (standing := _standing(threads)):
        text = f"{len(standing)} threads, all of them waiting: {'; '.join(standing[:6])}"
        own = Signature(failure="pipeline-deadlock", pattern="")
        yield _symptom("stacked-pipeline-deadlock", own, t, text, Source.STACKS)
    for failure, found in seen.items():
        names = ", ".join(list(dict.fromkeys(one.thread for one in found))[:6])
        text = _with_meaning(f"{names} in {found[0].text}", found[0].signature)
        yield _symptom(f"stacked-{failure}", found[0].signature, t, text, Source.STACKS)


def _standing(threads: Sequence[ThreadStack]) -> list[str]:
    """What each thread waits for, when all of them wait for each other in locks and queues."""
    told, mutual = [], 0
    for thread in threads[:MOST_THREADS]:
        if is_helper(thread):
            continue
        wait = wait_reason(thread)
        if wait not in WAITS:
            return []
        mutual += wait in MUTUAL
        told.append(f"{label_of(thread)} {wait} at {leaf_of(thread)}")
    return told if mutual >= 2 else []


def places(samples: Sequence[StackSample]) -> tuple[Evidence, ...]:
    """Where the threads of the newest dump stand, and which own code leads there.

    Args:
        samples: as given, oldest first.
    """
    readable = [one for one in samples if one.threads]
    threads = [one for one in readable[-1].threads if not is_helper(one)] if readable else []
    threads.sort(key=lambda one: one.name != "MainThread")
    return tuple(
        Evidence(kind=EvidenceKind.FOR, text=_place(one), source=Source.STACKS)
        for one in threads[:MOST_PLACES]
    )


def _place(thread: ThreadStack) -> str:
    wait = wait_reason(thread)
    doing = "" if wait in {"none", "unknown"} else f", {WAIT_WORDS.get(wait, wait)}"
    own = next((one for one in thread.frames[1:] if _is_own(one.file)), None)
    own = None if thread.frames and _is_own(thread.frames[0].file) else own
    called = f", called by {own.name} {own.file}:{own.line}" if own is not None else ""
    return clipped(f"{label_of(thread)}: {leaf_of(thread)}{doing}{called}")


def _is_own(file: str) -> bool:
    """A script, neither of Python's own library nor of an installed package."""
    short = short_file(file)
    if short.startswith("<") or not short.endswith(".py") or Path(short).stem in OF_PYTHON:
        return False
    return short.startswith("/") or "/" not in short


def signs_at_end(
    lines: Sequence[str], signatures: Sequence[Signature], t: float
) -> Iterator[Symptom]:
    """`log-end-<failure>`: the log stopped after a line after which many runs stand."""
    newest = [line for line in lines if line.strip()][-END_LINES:]
    if not newest:
        return
    matcher = Matcher(signatures, "end")
    for match in [*matcher.in_whole("\n".join(newest)), *matcher.in_line(newest[-1])]:
        text = _with_meaning(f"the log ends at {newest[-1].strip()[:160]!r}", match.signature)
        name = f"log-end-{match.signature.failure}"
        yield _symptom(name, match.signature, t, text, Source.LOG)


def thread_text(thread: ThreadStack) -> str:
    """One thread as signatures see it: `name (file)` a frame, innermost first."""
    return "\n".join(f"{frame.name} ({short_file(frame.file)})" for frame in thread.frames)


def _with_meaning(text: str, signature: Signature) -> str:
    return f"{text[:240]} ({signature.meaning})" if signature.meaning else text[:240]


def _symptom(name: str, signature: Signature, t: float, text: str, source: Source) -> Symptom:
    severity = Severity.WARNING if signature.grave else Severity.INFO
    own = Evidence(kind=EvidenceKind.FOR, text=text, source=source)
    return Symptom(
        name=name, subject="run", severity=severity, since_t=t, summary=text, source=source,
        evidence=(own,),
    )  # fmt: skip
