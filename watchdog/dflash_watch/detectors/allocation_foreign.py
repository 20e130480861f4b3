"""An allocation failed on a card of which much is held by somebody else.

Sees:       the figures of the allocator's own message: total, free, and what this process holds.
Means:      another process, or a leftover of a dead one, has the memory; the batch is not to blame.
Wrong when: the message does not count memory that libraries of this process took for themselves.
Source:     torch's message; total less free less own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from dflash_watch.detectors.base import Answer, Detector, Example, View, symptom
from dflash_watch.detectors.examples import example, frames, log
from dflash_watch.detectors.shortages import GIB, gib, shortages, subject_of
from dflash_watch.model import Severity, Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Limits."""

    least_share: float = 0.2
    """Of the card."""
    least_bytes: float = 1.5 * GIB
    """A context and the libraries of this process take up to one."""


def detect(view: View, params: Params) -> Iterator[Answer]:
    """One symptom a subject."""
    for fact, found in shortages(view):
        foreign, total = found.foreign_bytes, found.total_bytes
        if foreign is None or total is None or foreign < params.least_bytes:
            continue
        if foreign < params.least_share * total:
            continue
        text = f"{gib(foreign)} of {gib(total)} are held by somebody else"
        if found.own_bytes is not None:
            text += f"; this process holds {gib(found.own_bytes)}"
        answer = symptom(subject_of(fact), Severity.WARNING, fact.t, text, Source.LOG)
        yield msgspec.structs.replace(answer, order=fact.line)


COMPLAINT = (
    "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 8.00 GiB total capacity;"
    " {own} GiB already allocated; 0.02 GiB free; {own} GiB reserved in total by PyTorch)\n"
)


def firing() -> Example:
    """Two of eight GiB are ours, none is free."""
    return example(frames(2, logs=log(COMPLAINT.format(own="2.00"))), subject="run")


def clear() -> Example:
    """Nearly all of it is ours."""
    return example(frames(2, logs=log(COMPLAINT.format(own="7.40"))))


DETECTOR = Detector(detect=detect, params=Params(), firing=firing, clear=clear)
