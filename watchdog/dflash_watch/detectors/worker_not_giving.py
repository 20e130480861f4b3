"""A target, or the loader before it, rests although there is room or others wait for it.

Sees:       beat slots: its last progress, why it waits, who ends up waiting for it.
Means:      it is blocked outside any wait it names, or only half alive.
Wrong when: one item takes far longer than the limit and the worker computes all the time.
Source:     docs/run-directory.md, "beats"; window/waits.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from dflash_watch.detectors.base import Answer, Detector, Example, View
from dflash_watch.detectors.examples import example, stuck_after, worker
from dflash_watch.detectors.idle import Params, side_that_rests


def detect(view: View, params: Params) -> Iterator[Answer]:
    """Targets, and the loader before them."""
    yield from side_that_rests(view, params, "target", "loader")


def firing() -> Example:
    """It names no wait, and the other side waits for it."""
    return example(
        stuck_after(
            14, 10,
            lambda s: worker("target-0", s),
            lambda s: worker("drafter-0", s, wait="queue-get"),
        ),
        subject="target-0",
    )  # fmt: skip


def clear() -> Example:
    """Both get on."""
    return example(
        stuck_after(
            14, 10,
            lambda _: worker("target-0", 0.2),
            lambda _: worker("drafter-0", 0.3, wait="queue-get"),
        )
    )  # fmt: skip


DETECTOR = Detector(detect=detect, params=Params(), firing=firing, clear=clear)
