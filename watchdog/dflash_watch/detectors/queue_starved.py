"""Drafters spend most of their time waiting for hidden states.

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
    """Drafters, by their share of waiting in queue-get."""
    yield from side_that_waits(view, params, "drafter", "queue-get")


def firing() -> Example:
    """Waiting for two thirds of the time."""
    return waiting_example("drafter-0", "queue-get", 0.67, subject="run")


def clear() -> Example:
    """Waiting for a fifth."""
    return waiting_example("drafter-0", "queue-get", 0.2)


DETECTOR = Detector(detect=detect, params=Params(), firing=firing, clear=clear)
