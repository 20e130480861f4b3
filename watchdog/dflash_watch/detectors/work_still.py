"""Nothing moves while a step is due: no CPU ticks, no I/O, no SM activity.

Sees:       tick and byte differences of the whole process tree, SM activity where it is known.
Means:      the run waits for something that does not come.
Wrong when: the awaited work happens elsewhere (a remote service, another node).
Source:     docs/verdicts.md, "work".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dflash_watch.detectors.base import Answer, Detector, Example, View, missing, symptom
from dflash_watch.detectors.examples import example, frames, still, stuck_after, worker
from dflash_watch.model import Severity, Source
from dflash_watch.units import duration


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Limits."""

    least_s: float = 4.0
    """Stillness that counts."""


def detect(view: View, params: Params) -> Iterator[Answer]:
    """Stillness while a step is due, or before the first."""
    work = view.progress.work
    if work.moves is None:
        yield missing("run", "whether it uses processor time: no two readings so far")
        return
    due = view.progress.first_step_t is None or view.is_due()
    still_s = view.progress.still_s(view.window)
    if due and still_s >= params.least_s:
        cores = 0.0 if work.cpu_cores is None else work.cpu_cores
        text = f"nothing moves for {duration(still_s)}: {cores:.2f} cores in use"
        since_t = view.progress.still_since_t or view.now_t
        yield symptom("run", Severity.WARNING, since_t, text, Source.PROCESS)


def firing() -> Example:
    """Steps end, ticks end."""
    return example(stuck_after(14, 12, lambda s: worker("drafter-0", s, step=14)), subject="run")


def clear() -> Example:
    """Still for a moment only."""
    return example(frames(10), frames(3, start=10, processes=still))


DETECTOR = Detector(detect=detect, params=Params(), firing=firing, clear=clear)
