"""True acceptance stays far below what training estimates.

Sees:       `quality` events: acceptance measured by drafting, beside the teacher-forced estimate.
Means:      drafting differs from training: positions, masks, states or the target are not the same.
Wrong when: the estimate of the first steps, which is hardly above one.
Source:     docs/run-directory.md, "quality".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dflash_watch.detectors.base import Answer, Detector, Example, View, symptom
from dflash_watch.detectors.examples import T0, example, frames
from dflash_watch.model import Severity, Source
from dflash_watch.units import percent


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Limits."""

    ratio: float = 0.7
    """Of the tokens gained beyond the one that is always there: below it there is a gap."""
    in_a_row: int = 2
    """One measure is of few prompts."""
    least_gain: float = 0.5
    """Estimated gain below which there is nothing to miss."""


def detect(view: View, params: Params) -> Iterator[Answer]:
    """The newest measures."""
    newest = list(view.window.told.quality)[-params.in_a_row :]
    if len(newest) < params.in_a_row:
        return
    ratios = []
    for event in newest:
        true, estimate = event.get("acceptance_length"), event.get("estimate")
        if true is None or estimate is None or estimate - 1.0 < params.least_gain:
            return
        ratios.append((true - 1.0) / (estimate - 1.0))
    if max(ratios) >= params.ratio:
        return
    last = newest[-1]
    text = f"true acceptance {last['acceptance_length']:.2f}, estimated {last['estimate']:.2f}: "
    text += f"{percent(max(ratios[-1], 0.0))} of the gain, in {len(ratios)} measures in a row"
    since_t = min(float(newest[0]["t"]), view.now_t)
    yield symptom("run", Severity.WARNING, since_t, text, Source.EVENTS)


def _run(*pairs: tuple[float, float]) -> Example:
    events = tuple(
        {"kind": "quality", "seq": i, "t": T0 - 100 + i, "step": 100 * i,
         "acceptance_length": true, "estimate": estimate}
        for i, (true, estimate) in enumerate(pairs)
    )  # fmt: skip
    low = pairs[-1][0] < 2
    return example(frames(2, events=events), subject="run" if low else None)


def firing() -> Example:
    """Twice near one though four were promised."""
    return _run((3.9, 4.0), (1.1, 4.1), (1.0, 4.2))


def clear() -> Example:
    """One low measure between good ones."""
    return _run((3.9, 4.0), (1.1, 4.1), (3.8, 4.2))


DETECTOR = Detector(detect=detect, params=Params(), firing=firing, clear=clear)
