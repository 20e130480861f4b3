"""What earlier runs of a command taught: found again, believed with care, never about secrets."""

from __future__ import annotations

import pytest
from dflash_watch.limits import CEILING_S, PHASE_FLOOR_S, START_S, LearnedLimits
from dflash_watch.profiles import Profile, profile_from_data, profile_key

HERE = "this machine"


def profile(limit_s: float = 40.0, **phases: float) -> Profile:
    return Profile(limit_s=limit_s, steps=500, phases=phases, used_t=1.0)


@pytest.mark.parametrize(
    "other",
    [
        "/usr/bin/python3.11 -u train.py --lr 0.1 --out /runs/b",
        "python train.py --lr 0.3 --out /data/other/c7",
        "python3 train.py --lr 12 --out ./x/y",
    ],
)
def test_the_same_command_with_another_folder_or_number_is_the_same(other):
    assert profile_key(HERE, "python train.py --lr 0.3 --out /runs/a") == profile_key(HERE, other)


@pytest.mark.parametrize(
    ("where", "cmd"),
    [
        ("10.1.2.6", "python train.py --lr 0.3"),
        (HERE, "python other.py --lr 0.3"),
        (HERE, "python train.py --lr 0.3 --big"),
        (HERE, "python -m train.py --lr 0.3"),
    ],
)
def test_another_place_script_or_option_is_another_command(where, cmd):
    assert profile_key(where, cmd) != profile_key(HERE, "python train.py --lr 0.3")


def test_a_key_tells_nothing_of_the_command():
    key = profile_key(HERE, "python train.py --api-key sk-verysecret")
    assert key is not None
    assert len(key) == 24
    assert set(key) <= set("0123456789abcdef")


@pytest.mark.parametrize("cmd", ["", "python", "python -u"])
def test_a_command_without_a_script_has_no_profile(cmd):
    assert profile_key(HERE, cmd) is None


def test_an_earlier_run_gives_the_start_limit_and_is_named_as_its_reason():
    limits = LearnedLimits()
    limits.prior = profile(200.0)
    limit = limits.limit("training")
    assert limit.seconds == 400.0
    assert "earlier runs of this command" in limit.why
    limits.prior = profile(9.0)
    assert limits.limit("training").seconds == 60.0 < START_S
    limits.prior = profile(5000.0)
    assert limits.limit("training").seconds == CEILING_S


def test_what_this_run_taught_counts_more_than_what_earlier_ones_did():
    limits = LearnedLimits()
    limits.prior = profile(200.0)
    for _ in range(20):
        limits.observe("training", 1.0)
    assert limits.limit("training").seconds == pytest.approx(8.0)


def test_a_phase_may_take_six_times_the_longest_of_its_kind():
    limits = LearnedLimits()
    assert limits.budget("evaluating", 1800.0).seconds == 1800.0
    limits.prior = profile(evaluating=100.0)
    assert limits.budget("evaluating", 1800.0).seconds == 600.0
    limits.observe_phase("evaluating", 200.0)
    limits.observe_phase("evaluating", 90.0)
    assert limits.budget("evaluating", 1800.0).seconds == 1200.0
    assert "6 x the longest so far" in limits.budget("evaluating", 1800.0).why
    limits.observe_phase("checkpointing", 1.0)
    assert limits.budget("checkpointing", 900.0).seconds == PHASE_FLOOR_S


def test_one_odd_run_does_not_stay_for_ever():
    older, odd = profile(10.0, saving=10.0), profile(1000.0, loading=5.0)
    mixed = older.blended(odd)
    assert (mixed.limit_s, mixed.phases) == (505.0, {"saving": 10.0, "loading": 5.0})
    for _ in range(8):
        mixed = mixed.blended(older)
    assert mixed.limit_s < 15.0


def test_a_run_that_taught_too_little_leaves_no_profile():
    limits = LearnedLimits()
    assert limits.profile(3.0) is None
    for _ in range(9):
        limits.observe("training", 1.0)
    kept = limits.profile(3.0)
    assert kept is not None
    assert (kept.steps, kept.used_t) == (9, 3.0)


@pytest.mark.parametrize(
    "data",
    [
        None, [], {}, {"limit_s": "8"}, {"limit_s": -1, "steps": 1, "phases": {}},
        {"limit_s": float("nan"), "steps": 1, "phases": {}},
        {"limit_s": 8.0, "steps": 1.5, "phases": {}}, {"limit_s": 8.0, "steps": 1, "phases": 7},
        {"limit_s": 10**400, "steps": 1, "phases": {}},
    ],
)  # fmt: skip
def test_a_profile_that_cannot_be_believed_is_none(data):
    assert profile_from_data(data) is None


def test_a_profile_keeps_what_can_be_believed_of_its_phases():
    told = {"limit_s": 8, "steps": 3, "phases": {"saving": 4, "x": "y", "z": -3}, "used_t": None}
    assert profile_from_data(told) == Profile(limit_s=8.0, steps=3, phases={"saving": 4.0})
