"""Memory in use on a GPU goes up and down while steps are made: the allocator works, not the card.

Sees:       memory in use from look to look; with throughput events also whether it goes along with
            the tokens of a step.
Means:      shapes change, cached blocks do not fit and are given back and asked for again.
Wrong when: a new length that adds once, or a phase (evaluation, checkpoint) that takes and returns.
Source:     docs/frames.md, GpuSample; docs/run-directory.md, "throughput".
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dflash_watch.detectors.base import Answer, Detector, Example, View, symptom
from dflash_watch.detectors.examples import example, frames, log
from dflash_watch.frame import GpuSample
from dflash_watch.model import Severity, Source
from dflash_watch.roles import cards_of_run
from dflash_watch.units import data_size
from dflash_watch.window.told import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Limits."""

    looks: int = 40
    """Looks after the first step."""
    least_bytes: int = 256 * 2**20
    least_ratio: float = 0.005
    """A move is at least so much, and this share of the card."""
    moves: float = 0.3
    """Share of looks that move."""
    back: float = 0.25
    """Share of moves that go the other way: what only grows is no churn."""
    settle_s: float = 30.0
    """After the first step, and after a finite phase."""
    events: int = 8
    """Reports that make a correlation."""


def detect(view: View, params: Params) -> Iterator[Answer]:
    """Each GPU over the last minute."""
    first_t = view.progress.first_step_t
    if first_t is None or view.progress.phase is not None:
        return
    since_t = max(first_t, view.progress.quiet_end_t or 0.0) + params.settle_s
    along = _along_with_tokens(list(view.window.told.reported), params)
    for index, track in cards_of_run(view.window, view.options).items():
        looks = [one for one in track.recent(since_t) if one.memory is not None]
        if track.sample.state != "ok" or len(looks) < params.looks:
            continue
        total = track.sample.memory_total_bytes or 0
        least = max(params.least_bytes, params.least_ratio * total)
        held = [one.memory or 0 for one in looks]
        moves = [b - a for a, b in itertools.pairwise(held) if abs(b - a) >= least]
        if len(moves) < params.moves * len(held) or not _both_ways(moves, params.back):
            continue
        middle = statistics.median(abs(one) for one in moves)
        text = f"gpu{index}: memory in use goes up and down, by {data_size(middle)} in "
        text += f"{len(moves)} of {len(held)} looks{along}"
        yield symptom(f"gpu{index}", Severity.INFO, looks[0].t, text, Source.GPU)


def _both_ways(moves: Sequence[int], share: float) -> bool:
    up = sum(one > 0 for one in moves)
    return min(up, len(moves) - up) >= share * len(moves)


def _along_with_tokens(events: Sequence[Event], params: Params) -> str:
    """How closely reserved memory goes along with the tokens of a step."""
    pairs = []
    for before, after in itertools.pairwise(events):
        steps = (after.get("step") or 0) - (before.get("step") or 0)
        tokens = (after.get("tokens_total") or 0) - (before.get("tokens_total") or 0)
        held = _reserved(after)
        if steps > 0 and tokens > 0 and held:
            pairs.append((tokens / steps, held))
    if len(pairs) < params.events:
        return ""
    tokens_a_step, reserved = zip(*pairs, strict=True)
    if len(set(tokens_a_step)) < 2 or len(set(reserved)) < 2:
        return ""
    r = statistics.correlation(tokens_a_step, reserved)
    return f"; with the tokens of a step r = {r:.2f}"


def _reserved(event: Event) -> float:
    rows = event.get("memory")
    if not isinstance(rows, list):
        return 0.0
    held = [row.get("reserved_bytes") for row in rows if isinstance(row, dict)]
    return float(sum(one for one in held if isinstance(one, int)))


def _run(*, churns: bool) -> Example:
    """Memory that jumps every look, or that new lengths raise once each."""

    def cards(i: int) -> tuple[GpuSample, ...]:
        gibs = (60 + 4 * (i % 3)) if churns else 60 + 2 * min(i // 15, 5)
        return (GpuSample(index=0, memory_used_bytes=gibs * 2**30, memory_total_bytes=141 * 2**30),)

    told = frames(100, gpus=cards, logs=lambda i: log(f"step {i}/900\n"))
    return example(told, subject="gpu0" if churns else None)


def firing() -> Example:
    """Up and down at each look."""
    return _run(churns=True)


def clear() -> Example:
    """Each new length adds once."""
    return _run(churns=False)


DETECTOR = Detector(detect=detect, params=Params(), firing=firing, clear=clear)
