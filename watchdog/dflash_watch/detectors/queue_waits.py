"""One side of the queue waits for the other most of the time. No detector of its own."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass

from dflash_watch.detectors.base import Answer, Example, View, missing, symptom
from dflash_watch.detectors.examples import T0, example, frames
from dflash_watch.model import Severity, Source
from dflash_watch.units import percent


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Limits."""

    share: float = 0.5
    """Of the time, mean over the workers of that side."""


def side_that_waits(view: View, params: Params, role: str, reason: str) -> Iterator[Answer]:
    """Mean share of waiting; it opens nothing unless throughput is judged too.

    Args:
        view: of this moment.
        params: limits.
        role: `target` or `drafter`.
        reason: what they wait in, `queue-put` or `queue-get`.
    """
    told = view.window.told
    event = told.newest or {}
    shares = event.get("wait_shares")
    if not isinstance(shares, dict):
        if told.depths or told.capacity:  # without a queue nobody waits for one
            yield missing("run", "how long workers wait for the queue: the run does not tell")
        return
    waits = [
        float(reasons.get(reason) or 0.0)
        for name, reasons in shares.items()
        if told.role_of(name) == role and isinstance(reasons, dict)
    ]
    if not waits or statistics.fmean(waits) < params.share:
        return
    text = f"{role}s wait {percent(statistics.fmean(waits))} of the time ({reason})"
    since_t = float(event.get("t") or view.now_t) - float(event.get("window_s") or 0.0)
    judged = view.options.expect_tokens_per_s is not None
    yield symptom("run", Severity.INFO, since_t, text, Source.EVENTS, starts=judged)


def waiting_example(worker: str, reason: str, share: float, subject: str | None = None) -> Example:
    """A throughput event in which one worker waited for so much of the time."""
    event: dict[str, object] = {
        "kind": "throughput", "seq": 1, "t": T0, "step": 5, "window_s": 5.0,
        "wait_shares": {worker: {reason: share}},
    }  # fmt: skip
    return example(frames(2, events=(event,)), subject=subject)
