"""A run may say anything about itself: odd words cost those words, never the watching."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from dflash_watch.engine import Engine
from dflash_watch.frame import Frame, Gap, RunSample
from dflash_watch.model import RunOptions
from dflash_watch.window.intake import clean_event, clean_manifest
from hypothesis import given, settings
from hypothesis import strategies as st
from scenarios.timeline import T0, Timeline

ODD = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5),
    st.just(10**400), st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)  # fmt: skip
KINDS = (
    "phase", "throughput", "heartbeat", "autotune", "worker-failed", "checkpoint", "exit",
)  # fmt: skip
KEYS = (
    "t", "seq", "worker", "name", "edge", "budget_s", "step", "total_steps", "window_s",
    "tokens_per_s", "loss", "queue_depth", "queue_capacity", "wait_shares", "kernel", "key",
    "exception", "message", "traceback", "code", "reason",
)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None, max_examples=40)
@given(said=st.dictionaries(st.sampled_from(KEYS), ODD))
def test_no_event_whatever_is_in_it_ends_the_watching(kind: str, said: dict[str, Any]) -> None:
    run = Timeline.training(3)
    run.feed(msgspec.structs.replace(run.frame(), events=({**said, "kind": kind},)))
    run.go(2)
    assert run.last.board.pid is not None


@settings(deadline=None, max_examples=60)
@given(said=st.dictionaries(
    st.sampled_from(("process", "workers", "total_steps", "expected_tokens_per_s", "name")), ODD
))  # fmt: skip
def test_no_manifest_whatever_is_in_it_ends_the_watching(said: dict[str, Any]) -> None:
    run = Timeline.training(3)
    frame = run.frame()
    told = {"run_id": "r1", **said}
    run.feed(msgspec.structs.replace(frame, run=msgspec.structs.replace(frame.run, manifest=told)))
    run.go(2)
    assert run.last.verdict == "running"


@given(said=st.dictionaries(st.sampled_from(KEYS), ODD))
def test_an_event_always_has_a_moment_and_only_numbers_that_a_float_can_hold(
    said: dict[str, Any],
) -> None:
    event = clean_event(said, 17.0)
    assert math.isfinite(float(event["t"]))
    assert all(event.get(key) is None or event[key] < 1e18 for key in ("step", "loss", "budget_s"))


def test_workers_of_a_manifest_are_objects_and_its_process_is_one() -> None:
    told = clean_manifest({"workers": [1, {"name": "a", "role": 5}], "process": "x"})
    assert (told["workers"], told["process"]) == ([{"name": "a"}], {})


def test_a_run_that_makes_steps_has_not_ended_whatever_its_events_say() -> None:
    run = Timeline.training(30)
    event = {"kind": "exit", "t": None, "code": 0, "reason": "done"}
    run.feed(msgspec.structs.replace(run.frame(), events=(event,)))
    run.go(10)
    assert (run.last.verdict, run.last.failure) == ("running", "healthy")


def test_a_trainer_that_goes_on_after_a_worker_failed_has_not_crashed() -> None:
    run = Timeline.training(30)
    run.event("worker-failed", worker="target-1", exception="E", message="m")
    run.go(3)
    assert run.last.verdict == "crashed"
    run.go(15)
    assert run.last.verdict != "crashed"
    assert run.last.failure == "worker-died"


def test_a_pause_of_three_seconds_is_no_stall_and_one_of_eight_is() -> None:
    run = Timeline.training(30)
    run.state = "T"
    run.stop_steps()
    run.go(3)
    assert "stalled" not in run.verdicts()
    run.go(5)
    assert (run.last.verdict, run.last.failure) == ("stalled", "process-stopped")


def test_a_process_that_was_stopped_before_anybody_looked_needs_no_long_look() -> None:
    run = Timeline.ours()
    run.state = "T"
    run.hello()
    run.go(3)
    assert (run.last.verdict, run.last.failure) == ("stalled", "process-stopped")


def test_a_script_that_sleeps_between_epochs_is_quiet_and_one_that_sleeps_for_ever_is_not() -> None:
    run = Timeline.foreign(30, crew=())
    run.freeze()
    run.wchan, run.switches = "hrtimer_nanosleep", 900
    run.go(60)
    assert run.verdicts() == ["initialising", "running", "quiet"]
    assert run.incidents() == []
    run.go(600)
    assert run.last.verdict == "stalled"


def test_a_main_thread_that_polls_or_slept_all_along_explains_nothing() -> None:
    for wakes, slept_before in ((True, False), (False, True)):
        run = Timeline.foreign(30, crew=("target-0",))
        run.wchan, run.switches = "hrtimer_nanosleep", 900
        run.go(10 if slept_before else 1)
        run.freeze()
        for _ in range(30):
            run.switches += wakes
            run.go(1)
        assert run.last.verdict == "stalled"


def test_a_sleep_after_a_failure_is_no_pause() -> None:
    run = Timeline.foreign(30, crew=())
    run.say("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n")
    run.say("Exception in thread target-0:\nTraceback (most recent call last):\n")
    run.say('  File "a.py", line 1, in work\nRuntimeError: Triton Error [CUDA]: out of memory\n')
    run.freeze()
    run.wchan, run.switches = "hrtimer_nanosleep", 900
    run.go(30)
    assert run.last.verdict == "stalled"


def test_a_log_that_nobody_writes_is_said_in_words_not_as_process_none() -> None:
    note = "no process has /runs/a.log open for writing"
    nobody = RunSample(state="gone", how="log", note=note, gone_s=0.0)
    snapshot = Engine(RunOptions(), {}).advance(
        Frame(seq=1, t=T0, boot_s=5.0, run=nobody, processes=())
    )
    assert snapshot.verdict == "blind"
    assert note in snapshot.summary


def test_a_process_whose_words_may_not_be_read_is_not_called_initialising() -> None:
    why = "not allowed to see where the run writes: be its user (this is uid 65534), or root"
    run = Timeline.foreign(0, log_mode="none", gaps=(Gap(source="log", reason=why),))
    run.go(5)
    assert (run.last.verdict, run.last.failure) == ("blind", "unknown")
    assert why in run.last.summary
    run.gaps, run.log_mode = (), "lines"
    run.go(10)
    assert run.last.verdict == "running"


@pytest.mark.parametrize("make", [Timeline.training, Timeline.foreign])
@pytest.mark.parametrize("step_s", [3600.0, -3600.0, 2_592_000.0, -2_592_000.0])
def test_a_clock_that_is_set_is_no_silence_and_hides_none(
    make: Callable[..., Timeline], step_s: float
) -> None:
    run = make(60)
    run.t += step_s
    run.go(40)
    assert run.verdicts() == ["initialising", "running"]
    before = run.last.limit
    assert before is not None
    assert before.seconds < 15
    run.freeze()
    run.go(25)
    assert run.last.verdict == "stalled"


@pytest.mark.parametrize("step_s", [3600.0, -3600.0])
def test_a_clock_that_is_set_during_a_silence_changes_nothing_of_it(step_s: float) -> None:
    run = Timeline.foreign(60)
    run.freeze()
    run.go(3)
    run.t += step_s
    run.go(2)
    assert run.last.verdict == "running"
    run.go(20)
    assert run.last.verdict == "stalled"
    assert run.last.t - run.last.since_t < 40
