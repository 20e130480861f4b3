"""Which documents go together: few fixed lengths, right padding, whole windows.

A window is what all drafters take in one optimizer step, so every drafter sees the same shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dflash_train.errors import UsageError


@dataclass(frozen=True, slots=True)
class Window:
    """Documents of one step, padded to one length."""

    bucket: int
    documents: tuple[int, ...]


def bucket_of(length: int, buckets: Sequence[int]) -> int:
    """The smallest bucket that holds `length`.

    Raises:
        UsageError: longer than the last bucket.
    """
    for bucket in buckets:
        if length <= bucket:
            return bucket
    raise UsageError(f"document of {length} tokens: the last bucket holds {buckets[-1]}")


def plan_epoch(
    lengths: Sequence[int], buckets: Sequence[int], window_rows: int, order: Sequence[int]
) -> list[Window]:
    """All windows of one epoch, in the order in which their last document came.

    Documents are taken in `order`. What is left of a bucket moves up to the next larger one; what
    is left at the end (fewer than `window_rows`) waits for another epoch and its other order. The
    number of windows depends on the lengths alone.

    Args:
        lengths: tokens of each document.
        buckets: ascending.
        window_rows: documents of one window.
        order: a permutation of all documents.
    """
    rank = {document: place for place, document in enumerate(order)}
    waiting: dict[int, list[int]] = {bucket: [] for bucket in buckets}
    for document in order:
        waiting[bucket_of(lengths[document], buckets)].append(document)
    windows: list[Window] = []
    left: list[int] = []
    for bucket in buckets:
        rows = sorted(left + waiting[bucket], key=rank.__getitem__)
        whole = len(rows) - len(rows) % window_rows
        windows += [
            Window(bucket, tuple(rows[start : start + window_rows]))
            for start in range(0, whole, window_rows)
        ]
        left = rows[whole:]
    return sorted(windows, key=lambda window: rank[window.documents[-1]])
