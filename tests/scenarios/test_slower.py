"""Runs that get slower: when, by how much, what moved; and those that only look slower."""

from __future__ import annotations

from typing import Any

import msgspec
from dflash_watch.frame import GpuSample, HostSample
from scenarios.timeline import Timeline


class Shared(Timeline):
    """A run on a machine whose other work is a figure."""

    busy: float = 0.4

    def frame(self) -> Any:
        host = HostSample(cpus=8, load1=1.0, cpu_busy_ratio=self.busy)
        return msgspec.structs.replace(super().frame(), host=host)


def cards(watts: float) -> Any:
    return lambda _: (GpuSample(index=0, power_watts=watts, utilization_ratio=0.9, sm_ratio=0.6),)


def steady(seconds: int = 300) -> Shared:
    run = Shared.training(5, tokens_per_s=14_000.0, cores=1.0)
    run.gpus = cards(610.0)
    run.go(seconds)
    return run


def test_a_run_that_halves_its_own_speed_says_since_when_and_what_moved():
    run = steady()
    fault_t = run.t
    run.tokens_per_s, run.gpus = 7_000.0, cards(380.0)
    run.go(240)
    assert (run.last.verdict, run.last.failure) == ("slow", "throughput-below-baseline")
    assert "50 % of 14 000 of its own level" in run.last.summary
    facts = [fact.text for fact in run.last.evidence]
    assert any("from 14 000 to 7 000 tok/s (-50%)" in text for text in facts)
    assert any("moved at that time: GPU power (W) 610 -> 380" in text for text in facts)
    told = next(one for one in run.last.symptoms if one.name == "throughput-low")
    assert abs(told.since_t - fault_t) <= 30


def test_a_machine_that_works_for_others_is_not_held_against_the_run():
    run = steady()
    run.tokens_per_s, run.busy, run.cores = 6_000.0, 0.99, 0.8
    run.go(240)
    assert run.verdicts() == ["initialising", "running"]
    assert any("works for others" in one.missing for one in run.last.inconclusive)


def test_lengths_that_vary_make_no_level():
    run = steady(10)
    for i in range(60):
        run.tokens_per_s = 14_000.0 if i % 7 < 5 else 6_000.0
        run.go(10)
    assert run.verdicts() == ["initialising", "running"]


def test_an_evaluation_and_the_minute_after_it_are_not_slow():
    run = steady()
    run.event("phase", name="evaluating", edge="begin", budget_s=600.0)
    run.tokens_per_s, run.steps_per_s = 1_000.0, 1.0
    run.go(60)
    run.event("phase", name="evaluating", edge="end")
    run.go(10)
    run.tokens_per_s, run.steps_per_s = 14_000.0, 12.0
    run.go(120)
    assert "slow" not in run.verdicts()


def test_a_faster_run_is_not_slow_against_its_past():
    run = steady()
    run.tokens_per_s = 20_000.0
    run.go(600)
    assert run.verdicts() == ["initialising", "running"]
