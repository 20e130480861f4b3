"""Loss or gradient norm is not a number, reading after reading.

Sees:       loss and gradient norm of throughput events and of the log, per rank.
Means:      the weights are broken or no step counts any more; the run trains nothing.
Wrong when: an average over a window that holds one bad step; the next reading takes it back.
Source:     docs/run-directory.md, "throughput" and "numeric".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dflash_watch.detectors.base import Answer, Detector, Example, View, symptom
from dflash_watch.detectors.examples import T0, example, frames
from dflash_watch.model import Severity, Source
from dflash_watch.window.numerics import Streak


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Limits."""

    in_a_row: int = 3
    """Mixed precision overflows once or twice while its scale settles."""
    never_good_from_step: int = 1000
    """With no finite reading at all, two are enough so late: no start-up explains them."""


def detect(view: View, params: Params) -> Iterator[Answer]:
    """The figure that has been bad for longest."""
    bad = [one for one in view.window.numerics.streaks.values() if _is_broken(one, params)]
    if not bad:
        return
    first = min(bad, key=lambda one: one.since_t)
    text = f"{first.what.replace('_', ' ')} is {first.value}, {first.bad} readings in a row"
    if first.since_step is not None:
        text += f", since step {first.since_step}"
    text += "" if first.good else "; no finite one was seen"
    ranks = sorted({one.rank for one in bad if one.rank is not None})
    subject = ", ".join(f"rank-{rank}" for rank in ranks) or "run"
    source = Source.EVENTS if first.source == "events" else Source.LOG
    yield symptom(subject, Severity.CRITICAL, min(first.since_t, view.now_t), text, source)


def _is_broken(streak: Streak, params: Params) -> bool:
    if streak.bad >= params.in_a_row:
        return True
    late = (streak.step or 0) >= params.never_good_from_step
    return streak.bad >= 2 and not streak.good and late


def _events(*losses: float | None) -> Example:
    """Throughput events; None is a loss that is not finite."""

    def told(i: int) -> tuple[dict[str, object], ...]:
        base = {"t": T0 + i, "step": 10 * i}
        event: dict[str, object] = {"kind": "throughput", "seq": 2 * i, "loss": losses[i], **base}
        if losses[i] is not None:
            return (event,)
        return (
            event,
            {"kind": "numeric", "seq": 2 * i + 1, "what": "loss", "value": "nan", **base},
        )

    return example(frames(len(losses), events=told), subject=None if losses[-1] else "run")


def firing() -> Example:
    """Three windows without a finite loss."""
    return _events(2.0, 1.9, None, None, None)


def clear() -> Example:
    """The first windows only."""
    return _events(None, None, 2.1, 2.0)


DETECTOR = Detector(detect=detect, params=Params(), firing=firing, clear=clear)
