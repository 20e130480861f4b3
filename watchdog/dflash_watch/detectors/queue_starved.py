"""Drafters spend most of their time waiting for hidden states.

Sees:       shares of waiting time in the newest `throughput` event, not the depth at one moment.
Means:      the other side of the queue sets the pace.
Wrong when: a window so short that one evaluation or checkpoint fills it.
Source:     docs/run-directory.md, "throughput".
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass

from dflash_watch.detectors.base import Answer, Detector, Example, View, missing, symptom
from dflash_watch.detectors.examples import T0, example, frames
from dflash_watch.model import Severity, Source
from dflash_watch.units import percent


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Limits."""

    share: float = 0.5
    """Of the time, mean over the drafters."""


def detect(view: View, params: Params) -> Iterator[Answer]:
    """Mean share of waiting; it opens nothing unless throughput is judged too."""
    told = view.window.told
    shares = (told.newest or {}).get("wait_shares")
    if not isinstance(shares, dict):
        if told.depths or told.capacity:  # without a queue nobody waits for one
            yield missing("run", "how long workers wait for the queue: the run does not tell")
        return
    waits = [
        float(reasons.get("queue-get") or 0.0)
        for name, reasons in shares.items()
        if told.role_of(name) == "drafter" and isinstance(reasons, dict)
    ]
    if not waits or statistics.fmean(waits) < params.share:
        return
    event = told.newest or {}
    text = f"drafters wait {percent(statistics.fmean(waits))} of the time (queue-get)"
    since_t = float(event.get("t") or view.now_t) - float(event.get("window_s") or 0.0)
    judged = view.options.expect_tokens_per_s is not None
    yield symptom("run", Severity.INFO, since_t, text, Source.EVENTS, starts=judged)


def _event(share: float) -> dict[str, object]:
    return {
        "kind": "throughput", "seq": 1, "t": T0, "step": 5, "window_s": 5.0,
        "wait_shares": {"drafter-0": {"queue-get": share}},
    }  # fmt: skip


def firing() -> Example:
    """Waiting for two thirds of the time."""
    return example(frames(2, events=(_event(0.67),)), subject="run")


def clear() -> Example:
    """Waiting for a fifth."""
    return example(frames(2, events=(_event(0.2),)))


DETECTOR = Detector(detect=detect, params=Params(), firing=firing, clear=clear)
