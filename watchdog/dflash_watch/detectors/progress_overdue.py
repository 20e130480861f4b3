"""No step within the limit that this run has taught.

Sees:       the newest step by events, beats or log, against the learned limit of the phase.
Means:      the run does not get on; not yet why, and not yet that it will not recover.
Wrong when: one step is far slower than all before (a new shape compiles, an unannounced save).
Source:     docs/verdicts.md, "limits".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dflash_watch.detectors.base import Answer, Detector, Example, View, missing, symptom
from dflash_watch.detectors.examples import example, frames, stuck_after, worker
from dflash_watch.model import Severity, Source
from dflash_watch.units import duration


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """None: the limit is learned."""


def detect(view: View, _params: Params) -> Iterator[Answer]:
    """Silence against the limit, or a finite phase against its budget."""
    phase = view.progress.phase
    if phase is not None:
        spent_s = view.window.sight.seen_s(phase.since_t, view.now_t)
        if spent_s > phase.budget_s:
            text = f"{phase.name} for {duration(spent_s)} (budget {duration(phase.budget_s)})"
            yield symptom("run", Severity.WARNING, phase.since_t, text, Source.EVENTS)
        return
    age_s = view.age_s()
    if age_s is None:
        yield missing("run", "a first step: none was seen so far")
    elif age_s > view.limit.seconds:
        text = f"no step for {duration(age_s)} (limit {duration(view.limit.seconds)})"
        source = {"log": Source.LOG, "beats": Source.BEATS}.get(
            view.progress.source or "", Source.EVENTS
        )
        yield symptom("run", Severity.WARNING, view.now_t - age_s, text, source)


def firing() -> Example:
    """Steps, then twelve seconds without."""
    return example(stuck_after(14, 12, lambda s: worker("drafter-0", s, step=14)), subject="run")


def clear() -> Example:
    """A phase that was announced explains the silence."""
    begin = {
        "kind": "phase", "seq": 90, "t": 1_790_000_013.0, "name": "checkpointing",
        "edge": "begin", "budget_s": 60.0,
    }  # fmt: skip
    silent = stuck_after(14, 12, lambda s: worker("drafter-0", s, step=14))
    return example(frames(1, start=-1, events=(begin,)), silent)


DETECTOR = Detector(detect=detect, params=Params(), firing=firing, clear=clear)
