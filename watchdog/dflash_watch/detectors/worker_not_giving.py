"""A target, or the loader before it, rests although there is room or others wait for it.

Sees:       beat slots: its last progress, why it waits, who ends up waiting for it.
Means:      it is blocked outside any wait it names, or only half alive.
Wrong when: one item takes far longer than the limit and the worker computes all the time.
Source:     docs/run-directory.md, "beats"; window/waits.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dflash_watch.detectors.base import Answer, Detector, Example, View, symptom
from dflash_watch.detectors.examples import example, stuck_after, worker
from dflash_watch.detectors.idle import idle_workers, resting_gpus
from dflash_watch.model import Severity, Source
from dflash_watch.units import duration


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Limits."""

    least_s: float = 5.0
    """Without progress for at least so long."""
    limit_share: float = 0.6
    """And for at least this share of the limit of steps."""
    untaught_s: float = 20.0
    """Limit that counts while none is learned."""


def detect(view: View, params: Params) -> Iterator[Answer]:
    """Idle workers of that role for whom others wait."""
    limit_s = view.limit.seconds if view.is_taught else params.untaught_s
    least_s = max(params.least_s, params.limit_share * limit_s)
    yield from resting_gpus(view, "target")
    idle_ones = (*idle_workers(view, "target", least_s), *idle_workers(view, "loader", least_s))
    for idle in idle_ones:
        text = f"{idle.worker.name} made no progress for {duration(idle.since_s)}; {idle.why}"
        since_t = view.now_t - idle.since_s
        yield symptom(idle.worker.name, Severity.CRITICAL, since_t, text, Source.BEATS)


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
