"""Limits: learned, bounded, said with their reason, and never from nothing."""

from __future__ import annotations

import msgspec
import pytest
from dflash_watch.limits import (
    CEILING_S,
    FLOOR_S,
    START_S,
    YOUNG_FLOOR_S,
    LearnedLimits,
)
from hypothesis import given
from hypothesis import strategies as st


def learned(*gaps: float) -> LearnedLimits:
    limits = LearnedLimits()
    for gap in gaps:
        limits.observe("training", gap)
    return limits


def test_before_enough_steps_a_generous_limit_stands():
    assert LearnedLimits().limit("training").seconds == START_S
    assert learned(*[5.0] * 7).limit("training").seconds == START_S
    assert "7 steps" in learned(*[5.0] * 7).limit("training").why


def test_a_burst_of_steps_in_one_second_teaches_nothing():
    limits = LearnedLimits()
    limits.observe("training", 0.1, steps=50, over_s=1.0)
    assert limits.limit("training").seconds == START_S


def test_a_young_run_gets_more_time_than_a_known_one():
    limits = LearnedLimits()
    limits.observe("training", 0.1, steps=50, over_s=4.0)
    assert limits.limit("training").seconds == YOUNG_FLOOR_S
    limits.observe("training", 0.1, steps=50, over_s=10.0)
    assert limits.limit("training").seconds == FLOOR_S


def test_the_limit_is_eight_times_the_slowest_step_and_says_so():
    limit = learned(*[2.6] * 212).limit("training")
    assert limit.seconds == pytest.approx(20.8)
    assert limit.why == "8 x the slowest of 212 steps = 21 s"


def test_one_long_pause_lifts_the_limit_by_its_own_factor():
    limit = learned(*[1.0] * 400, 60.0).limit("training")
    assert limit.seconds == pytest.approx(150.0)
    assert "longest pause" in limit.why


def test_phases_learn_apart():
    limits = learned(*[1.0] * 20)
    for _ in range(20):
        limits.observe("checkpointing", 30.0)
    assert limits.limit("training").seconds == pytest.approx(8.0)
    assert limits.limit("checkpointing").seconds == pytest.approx(240.0)


@given(st.lists(st.floats(0.0, 5000.0), min_size=8, max_size=60))
def test_a_learned_limit_stays_within_its_bounds_and_above_every_gap_it_saw(gaps):
    limit = learned(*gaps).limit("training").seconds
    assert FLOOR_S <= limit <= CEILING_S
    assert limit >= min(max(gaps), CEILING_S) or limit == START_S


def test_plain_data_brings_the_same_limits_back():
    limits = learned(*[1.7] * 50)
    limits.identity = "r1/4000/77"
    data = msgspec.json.decode(msgspec.json.encode(limits.to_data()))
    back = LearnedLimits.from_data(data)
    assert back.identity == "r1/4000/77"
    assert back.limit("training") == limits.limit("training")


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"gaps": 3},
        {"gaps": {"training": "x"}},
        {"gaps": {"training": [None, -1, 1e9]}},
        {"gaps": {"training": []}, "steps": {"training": 90}, "over_s": {"training": 90.0}},
        {"steps": {"training": float("nan")}, "over_s": {"training": 10**400}},
        {"gaps": {"training": [float("nan")]}, "steps": {"training": float("inf")}},
    ],
)
def test_data_that_cannot_be_believed_is_left_out(data):
    assert LearnedLimits.from_data(data).limit("training").seconds == START_S
