"""Tokens a second are clearly below what was promised, or below this run's own past.

Sees:       the mean of the last half minute against the expectation, else against the run's own
            level: steady for three minutes before a change, or ten minutes; what moved with it.
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
from dflash_watch.model import Evidence, EvidenceKind, RunOptions, Severity, Source
from dflash_watch.units import count, duration, percent
from dflash_watch.window.past import Change
from dflash_watch.window.speed import BUCKET_S

EXPECTED, OWN = "expected", "of its own level"


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
    steady_buckets: int = 12
    """The same, when they were steady up to a change that has held for a minute."""
    steady: float = 0.1
    """Deviation of a steady level, as a share of it."""
    starved_busy: float = 0.95
    starved_share: float = 0.7
    """A machine that is this busy while the run gets less than this share of its processors works
    for others: its own level then says nothing against the run."""
    most_moved: int = 4


def detect(view: View, params: Params) -> Iterator[Answer]:
    """The last half minute against the baseline."""
    throughput = view.window.told.throughput
    now = throughput.mean(view.now_t - params.over_s)
    if now is None:
        yield missing("run", "how fast it is: neither events nor log tell tokens a second")
        return
    change = view.window.past.change(throughput)
    known = _baseline(view, change, params)
    if known is None:
        return
    low, base, what = known
    bound = low * base
    first_t = throughput.buckets[0].start_t
    if now >= params.clear_ratio * bound or view.now_t - first_t <= params.over_s + BUCKET_S:
        return
    if what != EXPECTED and _is_starved(view, params):
        yield missing("run", "how fast it could be: the machine works for others")
        return
    text = f"{count(now)} tok/s, {percent(now / base)} of {count(base)} {what}"
    since_t, facts = view.now_t - params.over_s, []
    if change is not None and change.after < change.before:
        since_t = min(change.t, view.now_t)
        facts = _facts(view, change, params)
    starts = now < bound
    yield symptom("run", Severity.WARNING, since_t, text, Source.EVENTS, *facts, starts=starts)


def _baseline(view: View, change: Change | None, params: Params) -> tuple[float, float, str] | None:
    """(share below which it is low, the baseline, in words): the promise, else its own level."""
    promised = view.options.expect_tokens_per_s
    promised = promised or view.window.manifest.get("expected_tokens_per_s")
    if promised:
        return params.expected_ratio, float(promised), EXPECTED
    if _just_paused(view, params):
        return None
    levels = []
    if change is not None and change.after < change.before:
        long_enough = change.num_before >= params.steady_buckets
        if long_enough and change.spread <= params.steady * change.before:
            levels.append(change.before)
    buckets = view.window.told.throughput.buckets
    if len(buckets) >= params.own_buckets:
        levels.append(statistics.median(bucket.mean for bucket in buckets))
    return (params.own_ratio, max(levels), OWN) if levels else None


def _just_paused(view: View, params: Params) -> bool:
    """An evaluation or a checkpoint is, or was, part of what the mean is over."""
    if view.progress.phase is not None:
        return True
    return view.now_t - (view.progress.quiet_end_t or 0.0) < params.over_s + 2 * BUCKET_S


def _is_starved(view: View, params: Params) -> bool:
    host, cores = view.window.host, view.progress.work.cpu_cores
    if host is None or host.cpu_busy_ratio is None or not host.cpus or cores is None:
        return False
    busy = host.cpu_busy_ratio >= params.starved_busy
    return busy and cores < params.starved_share * host.cpus


def _facts(view: View, change: Change, params: Params) -> list[Evidence]:
    """When it changed, by how much, and what moved with it."""
    share = change.after / change.before - 1.0
    ago = duration(view.now_t - change.t)
    levels = f"from {count(change.before)} to {count(change.after)} tok/s"
    told = [f"changed {ago} ago, {levels} ({share:+.0%})"]
    moved = view.window.past.moved_at(change.t)[: params.most_moved]
    told.append(f"moved at that time: {'; '.join(moved)}" if moved else "nothing else moved then")
    return [Evidence(kind=EvidenceKind.FOR, text=one, source=Source.EVENTS) for one in told]


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
