"""An allocation failed although the allocator holds more unused memory than was asked for.

Sees:       the figures of the allocator's own message.
Means:      the unused memory lies in pieces too small; a batch that fits in sum does not fit.
Wrong when: the unused memory belongs to another pool, as that of captured graphs.
Source:     torch's message: "reserved but unallocated" against "tried to allocate".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from dflash_watch.detectors.base import Answer, Detector, Example, View, symptom
from dflash_watch.detectors.examples import example, frames, log
from dflash_watch.detectors.shortages import gib, shortages, subject_of
from dflash_watch.model import Severity, Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Limits."""

    times_asked: float = 1.0
    """Unused memory against what was asked for."""
    least_share: float = 0.05
    """And against the card: crumbs are in every pool."""


def detect(view: View, params: Params) -> Iterator[Answer]:
    """One symptom a subject."""
    for fact, found in shortages(view):
        unused, asked = found.unused_bytes, found.asked_bytes
        if unused is None or asked is None or unused < params.times_asked * asked:
            continue
        if found.total_bytes is not None and unused < params.least_share * found.total_bytes:
            continue
        text = f"asked for {gib(asked)} while {gib(unused)} was reserved and unused"
        answer = symptom(subject_of(fact), Severity.WARNING, fact.t, text, Source.LOG)
        yield msgspec.structs.replace(answer, order=fact.line)


COMPLAINT = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {asked} GiB. GPU 0 has a total "
    "capacity of 79.15 GiB of which 0.90 GiB is free. Of the allocated memory 60.00 GiB is "
    "allocated by PyTorch, and {unused} GiB is reserved by PyTorch but unallocated.\n"
)


def firing() -> Example:
    """Two GiB asked, seventeen unused."""
    said = log(COMPLAINT.format(asked="2.00", unused="17.00"))
    return example(frames(2, logs=said), subject="run")


def clear() -> Example:
    """Two GiB asked, little unused: the card is full."""
    return example(frames(2, logs=log(COMPLAINT.format(asked="2.00", unused="0.10"))))


DETECTOR = Detector(detect=detect, params=Params(), firing=firing, clear=clear)
