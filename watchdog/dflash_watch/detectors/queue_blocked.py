"""Targets spend most of their time waiting for room in the queue.

Sees:       shares of waiting time in the newest `throughput` event, not the depth at one moment.
Means:      the other side of the queue sets the pace.
Wrong when: a window so short that one evaluation or checkpoint fills it.
Source:     docs/run-directory.md, "throughput".
"""

from __future__ import annotations

from collections.abc import Iterator

from dflash_watch.detectors.base import Answer, Detector, Example, View
from dflash_watch.detectors.queue_waits import Params, side_that_waits, waiting_example


def detect(view: View, params: Params) -> Iterator[Answer]:
    """Targets, by their share of waiting in queue-put."""
    yield from side_that_waits(view, params, "target", "queue-put")


def firing() -> Example:
    """Waiting for two thirds of the time."""
    return waiting_example("target-0", "queue-put", 0.67, subject="run")


def clear() -> Example:
    """Waiting for a fifth."""
    return waiting_example("target-0", "queue-put", 0.2)


DETECTOR = Detector(detect=detect, params=Params(), firing=firing, clear=clear)
