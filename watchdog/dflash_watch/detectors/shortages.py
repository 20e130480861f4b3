"""Failed allocations as the log tells them. No detector of its own."""

from __future__ import annotations

from collections.abc import Iterator

from dflash_watch.detectors.base import View
from dflash_watch.readers.facts import SignatureSeen
from dflash_watch.readers.oomtext import Shortage, parse_shortage

GIB = 2.0**30
OF = frozenset({"cuda-oom", "triton-autotune-oom"})


def shortages(view: View) -> Iterator[tuple[SignatureSeen, Shortage]]:
    """The newest of each subject, with its figures."""
    newest: dict[str, tuple[SignatureSeen, Shortage]] = {}
    for fact in view.window.logs.signatures:
        found = parse_shortage(fact.text) if fact.failure in OF else None
        if found is not None:
            newest[fact.subject] = (fact, found)
    yield from newest.values()


def subject_of(fact: SignatureSeen) -> str:
    """Worker or rank that the line names, else the run."""
    return "run" if fact.subject in {"unknown", "main"} else fact.subject


def gib(num_bytes: float) -> str:
    """`3.06 GiB`."""
    return f"{num_bytes / GIB:.2f} GiB"
