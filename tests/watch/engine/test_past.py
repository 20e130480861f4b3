"""When did the level shift, by how much, and what shifted with it?"""

from __future__ import annotations

import itertools
import math

import pytest
from dflash_watch.frame import Frame, GpuSample, HostSample, RunSample
from dflash_watch.window.past import Past, find_change
from dflash_watch.window.speed import BUCKET_S, Bucket, Throughput

T0 = 1_790_000_010.0


def buckets(*values: float) -> list[Bucket]:
    return [Bucket(T0 + BUCKET_S * i, v, v, v) for i, v in enumerate(values)]


def wobble(level: float, count: int, share: float = 0.03) -> list[float]:
    return [level * (1 + share * math.sin(7.3 * i)) for i in range(count)]


@pytest.mark.parametrize(("before", "after"), [(14_200, 11_000), (11_000, 14_200), (100, 20)])
@pytest.mark.parametrize("at", [6, 40, 100])
def test_a_shift_is_found_where_it_is(before, after, at):
    change = find_change(buckets(*wobble(before, at + 2), *wobble(after, 30)))
    assert change is not None
    assert change.t == pytest.approx(T0 + BUCKET_S * (at + 2), abs=BUCKET_S)
    assert (change.before, change.after) == pytest.approx((before, after), rel=0.05)


def test_of_two_shifts_the_newest_counts():
    change = find_change(buckets(*wobble(100, 30), *wobble(60, 30), *wobble(90, 30)))
    assert change is not None
    assert (change.before, change.after) == pytest.approx((60, 90), rel=0.05)


@pytest.mark.parametrize(
    "values",
    [
        [],
        [100.0] * 3,
        [100.0] * 60,
        wobble(100, 200, share=0.2),  # lengths vary from step to step
        [*wobble(100, 60), 5.0, *wobble(100, 60)],  # a checkpoint
        [20.0, 60.0, *wobble(100, 60)],  # the first steps are slow
        wobble(100, 60) + wobble(95, 60),  # too small to matter
    ],
)
def test_one_level_has_no_shift(values):
    assert find_change(buckets(*values)) is None


def test_a_slow_slide_is_a_shift_somewhere_in_it():
    change = find_change(buckets(*[100.0 - i for i in range(60)]))
    assert change is None or change.after < change.before


def story(past: Past, *, power: tuple[float, float], busy: tuple[float, float]) -> float:
    """Ten minutes, then ten minutes at other figures; returns the moment between."""
    for i in range(1200):
        late = i >= 600
        card = GpuSample(index=0, power_watts=power[late], sm_clock_mhz=1500)
        frame = Frame(
            seq=i, t=T0 + i, boot_s=float(i), run=RunSample(state="found", how="pid"),
            gpus=(card,), host=HostSample(cpu_busy_ratio=busy[late]),
        )  # fmt: skip
        past.take(frame, 2.0, ())
    return T0 + 600


def test_what_moved_at_that_time_is_told_and_what_did_not_is_not():
    past = Past()
    at = story(past, power=(610.0, 420.0), busy=(0.5, 0.51))
    assert past.moved_at(at) == ["GPU power (W) 610 -> 420"]


def test_a_phase_that_began_at_that_time_is_told():
    past = Past()
    at = story(past, power=(610.0, 610.0), busy=(0.5, 0.5))
    past._take_event({"kind": "phase", "t": at + 3, "name": "evaluating", "edge": "begin"})
    assert past.moved_at(at) == ["evaluating (begin)"]


def test_longer_sequences_are_told_as_tokens_a_step():
    past = Past()
    total, at = 0, T0 + 600
    for i in range(240):
        t = T0 + 5 * i
        total += 30_000 if t < at else 60_000
        past._take_event({"kind": "throughput", "t": t, "step": 10 * i, "tokens_total": total})
    assert past.moved_at(at) == ["tokens a step 3000 -> 6000"]


def test_the_shift_is_looked_for_once_a_bucket(monkeypatch):
    calls = itertools.count()
    monkeypatch.setattr("dflash_watch.window.past.find_change", lambda _: next(calls))
    past, speed = Past(), Throughput()
    for i in range(40):
        speed.take(T0 + i, 100.0)
        past.change(speed)
    assert next(calls) == 40 // BUCKET_S + 1
