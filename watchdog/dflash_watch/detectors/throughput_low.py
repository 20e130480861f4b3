"""Tokens a second are clearly below what was promised, or below this run's own past.

Sees:       the mean of the last half minute against the expectation, else against the run's own
            level over at least ten minutes.
Means:      the run gets on, slower than it could.
Wrong when: the expectation belongs to another machine, or the data just changed in length.
Source:     docs/run-directory.md, "throughput".
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass

from dflash_watch.detectors.base import Answer, Detector, Example, View, missing, symptom
from dflash_watch.detectors.examples import T0, example, frames
from dflash_watch.model import RunOptions, Severity, Source
from dflash_watch.units import count, percent
from dflash_watch.window.speed import BUCKET_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Limits."""

    expected_ratio: float = 0.85
    """Below this share of the expectation."""
    own_ratio: float = 0.65
    """Below this share of the run's own level."""
    clear_ratio: float = 1.06
    """Times the bound, at which it is over: in between nothing new is said."""
    over_s: float = 30.0
    """Mean over so long."""
    own_buckets: int = 40
    """Quarter minutes that make an own level."""


def detect(view: View, params: Params) -> Iterator[Answer]:
    """The last half minute against the baseline."""
    throughput = view.window.told.throughput
    now = throughput.mean(view.now_t - params.over_s)
    if now is None:
        yield missing("run", "how fast it is: neither events nor log tell tokens a second")
        return
    first_t = throughput.buckets[0].start_t
    expected = view.options.expect_tokens_per_s or view.window.manifest.get("expected_tokens_per_s")
    if expected:
        low, base, what = params.expected_ratio, float(expected), "expected"
    elif len(throughput.buckets) >= params.own_buckets:
        level = statistics.median(bucket.mean for bucket in throughput.buckets)
        low, base, what = params.own_ratio, level, "of its own level"
    else:
        return
    bound = low * base
    if now < params.clear_ratio * bound and view.now_t - first_t > params.over_s + BUCKET_S:
        text = f"{count(now)} tok/s, {percent(now / base)} of {count(base)} {what}"
        since_t = view.now_t - params.over_s
        starts = now < bound
        yield symptom("run", Severity.WARNING, since_t, text, Source.EVENTS, starts=starts)


def _run(tokens: float) -> Example:
    def events(i: int) -> tuple[dict[str, object], ...]:
        return ({"kind": "throughput", "seq": i, "t": T0 + i, "step": i, "tokens_per_s": tokens},)

    made = example(frames(90, events=events), subject="run" if tokens < 12000 else None)
    options = RunOptions(expect_tokens_per_s=14200.0)
    return Example(records=made.records, subject=made.subject, options=options)


def firing() -> Example:
    """11K of 14.2K."""
    return _run(11000.0)


def clear() -> Example:
    """14K of 14.2K."""
    return _run(14000.0)


DETECTOR = Detector(detect=detect, params=Params(), firing=firing, clear=clear)
