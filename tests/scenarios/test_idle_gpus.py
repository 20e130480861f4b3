"""Idle against oscillating GPUs, for a run of which only `--roles` is known."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from dflash_watch.frame import GpuSample
from dflash_watch.model import RunOptions
from scenarios.timeline import Timeline

ROLES = RunOptions(roles={"target": (0, 1, 2), "drafter": (3, 4, 5)})
Use = Callable[[float], float]


def cards(odd: Use, usual: Use = lambda _: 0.9) -> Callable[[float], tuple[GpuSample, ...]]:
    """Six cards at work; GPU 5 has its own use."""

    def at(t: float) -> tuple[GpuSample, ...]:
        made = []
        for index in range(6):
            used = (odd if index == 5 else usual)(t)
            made.append(
                GpuSample(
                    index=index, utilization_ratio=used, sm_ratio=0.8 * used,
                    tensor_ratio=0.4 * used, power_watts=120 + 500 * used,
                    power_limit_watts=700.0, memory_used_bytes=70 * 2**30,
                )
            )  # fmt: skip
        return tuple(made)

    return at


def watched(odd: Use, usual: Use = lambda _: 0.9, seconds: int = 120) -> Timeline:
    run = Timeline.foreign(10, options=ROLES)
    run.gpus = cards(odd, usual)
    run.go(seconds)
    return run


def test_a_card_that_does_nothing_while_its_siblings_work_is_named():
    run = watched(lambda _: 0.0)
    assert (run.last.verdict, run.last.failure, run.last.subject) == (
        "slow",
        "drafter-idle",
        "gpu5",
    )
    assert "while its siblings work" in run.last.summary


@pytest.mark.parametrize("period_s", [4, 10, 40])
def test_a_card_that_works_and_rests_in_turns_is_between_bursts(period_s):
    run = watched(lambda t: 0.95 if t % period_s < period_s / 2 else 0.0, seconds=160)
    assert run.verdicts() == ["initialising", "running"]
    assert run.last.failure == "healthy"


def test_a_pause_of_all_of_them_accuses_nobody():
    run = watched(lambda _: 0.0, usual=lambda _: 0.0)
    assert run.last.failure == "healthy"


def test_one_card_that_evaluates_alone_accuses_none_of_the_others():
    run = watched(lambda _: 0.9, usual=lambda _: 0.0)
    assert run.last.failure == "healthy"


def test_half_a_minute_of_rest_is_said_to_be_undecided():
    run = watched(lambda _: 0.0, seconds=30)
    assert run.last.failure == "healthy"
    told = {(one.name, one.subject) for one in run.last.inconclusive if "bursts" in one.missing}
    assert told == {("worker-not-taking", "gpu5")}
