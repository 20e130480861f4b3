"""Training waits for its input most of the time, though it gets it.

Sees:       shares of waiting time in `throughput` events (targets that wait for the loader);
            without them, stack samples of a run that makes steps: most find its thread in a loader.
Means:      reading or preparing data sets the pace, not the hardware.
Wrong when: few samples were taken, each just after a step.
Source:     docs/run-directory.md, "throughput"; readers/places.py.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass

from dflash_watch.detectors.base import Answer, Detector, Example, View, symptom
from dflash_watch.detectors.examples import T0, example, frames
from dflash_watch.frame import StackSample
from dflash_watch.model import Severity, Source
from dflash_watch.readers.places import is_data_file, place_of
from dflash_watch.readers.waits import is_helper, wait_reason
from dflash_watch.units import percent


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Limits."""

    share: float = 0.5
    """Of the time, mean over the targets."""
    samples: int = 3
    """Stack samples that say anything together."""
    fresh_s: float = 300.0


def detect(view: View, params: Params) -> Iterator[Answer]:
    """It opens nothing by itself: a run that waits and is fast enough is well."""
    event = view.window.told.newest or {}
    shares = event.get("wait_shares")
    if isinstance(shares, dict) and shares:
        waits = [
            float(reasons.get("queue-get") or 0.0)
            for name, reasons in shares.items()
            if view.window.told.role_of(name) == "target" and isinstance(reasons, dict)
        ]
        if waits and statistics.fmean(waits) >= params.share:
            text = f"targets wait {percent(statistics.fmean(waits))} of the time for the loader"
            since_t = float(event.get("t") or view.now_t) - float(event.get("window_s") or 0.0)
            yield symptom("run", Severity.INFO, since_t, text, Source.EVENTS)
        return
    if view.progress.first_step_t is None or view.is_overdue():
        return
    seen = [
        one
        for one in view.window.samples.order
        if one.threads and view.now_t - one.t <= params.fresh_s
        and one.t >= view.progress.first_step_t
    ]  # fmt: skip
    if len(seen) < params.samples:
        return
    waiting = [one for one in seen if _waits_for_data(one)]
    if 3 * len(waiting) >= 2 * len(seen):
        text = f"{len(waiting)} of {len(seen)} stack samples find it waiting for the data loader"
        yield symptom("run", Severity.INFO, waiting[0].t, text, Source.STACKS)


def _waits_for_data(sample: StackSample) -> bool:
    return any(
        place_of(one.frames, wait_reason(one)) == "data"
        for one in sample.threads
        if any(is_data_file(frame.file) for frame in one.frames)  # cheap, and mostly false
        and not is_helper(one)
        and not any(frame.name.endswith("_worker_loop") for frame in one.frames)
    )


def firing() -> Example:
    """Two thirds of the time."""
    return _shares(0.67, "run")


def clear() -> Example:
    """A fifth of it."""
    return _shares(0.2, None)


def _shares(share: float, subject: str | None) -> Example:
    event: dict[str, object] = {
        "kind": "throughput", "seq": 1, "t": T0, "step": 5, "window_s": 5.0,
        "wait_shares": {"target-0": {"queue-get": share}},
    }  # fmt: skip
    return example(frames(2, events=(event,)), subject=subject)


DETECTOR = Detector(detect=detect, params=Params(), firing=firing, clear=clear)
