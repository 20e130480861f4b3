"""Faults that hold a run whose process is alive: each has one name, one subject, stacks on disk."""

from __future__ import annotations

import signal

import pytest
from e2e.faults import check_kept, check_quiet_afterwards, measure
from e2e.watched import Watched

pytestmark = [pytest.mark.e2e, pytest.mark.ssh, pytest.mark.lxc]


def test_a_stopped_run_is_named_goes_on_when_continued_and_is_a_crash_when_killed(
    watched: Watched,
) -> None:
    run = watched.tiny()
    watch = watched.watch(run)
    watch.until_running()
    stopped_t = run.signal(signal.SIGSTOP)
    kept = watch.until_kept("process-stopped")
    measure("SIGSTOP", watch, "stalled", "process-stopped", stopped_t)
    check_kept(kept, "stalled", "process-stopped", "run", samples=3)
    check_quiet_afterwards(watch, [kept])

    run.signal(signal.SIGCONT)
    told = len(watch.lines)
    watch.until(
        lambda line: line["verdict"] == "running" and line in watch.lines[told:], "running again"
    )

    killed_t = run.signal(signal.SIGKILL)
    death = watch.until_kept("main-process-died")
    measure("SIGKILL", watch, "crashed", "main-process-died", killed_t)
    check_kept(death, "crashed", "main-process-died", "run", samples=0)
    assert "not there any more" in death.report
    check_quiet_afterwards(watch, [kept, death])


def test_a_lock_cycle_names_both_drafters_and_the_owner_of_each_lock(watched: Watched) -> None:
    run = watched.tiny("drill.fault=lock-cycle", "drill.at_step=60")
    watch = watched.watch(run)
    kept = watch.until_kept("pipeline-deadlock")
    measure("lock cycle", watch, "stalled", "pipeline-deadlock", run.last_word_t())
    check_kept(kept, "stalled", "pipeline-deadlock", "drafter-0, drafter-1", samples=3)
    told = " ".join(fact["text"] for fact in kept.verdict["evidence"])
    assert "weights-of-drafter-1 owned by drafter-1" in told
    assert "weights-of-drafter-0 owned by drafter-0" in told
    assert all("_take_weights_of" in stacks for stacks in kept.stacks())
    check_quiet_afterwards(watch, [kept])
    watch.stop()
    assert watch.replayed() == watch.changes(), watch.told()


def test_a_drafter_that_stops_taking_while_the_queue_is_full_is_named(watched: Watched) -> None:
    run = watched.tiny("drill.fault=stop-taking", "drill.at_step=60", "drill.worker=drafter-1")
    watch = watched.watch(run)
    kept = watch.until_kept("drafter-idle")
    measure("drafter stops taking", watch, "stalled", "drafter-idle", run.last_word_t())
    check_kept(kept, "stalled", "drafter-idle", "drafter-1", samples=3)
    assert all("before_take" in stacks for stacks in kept.stacks())
    check_quiet_afterwards(watch, [kept])


@pytest.mark.parametrize(
    ("how", "place"),
    [("busy", "_compute_without_letting_go"), ("asleep", "_sleep_without_letting_go")],
)
def test_a_call_that_keeps_the_interpreter_lock_in_our_run_is_named(
    watched: Watched, how: str, place: str
) -> None:
    run = watched.tiny(f"drill.fault=gil-{how}", "drill.at_step=60", "drill.worker=target-1")
    watch = watched.watch(run)
    kept = watch.until_kept("gil-held")
    measure(f"GIL held, {how}", watch, "stalled", "gil-held", run.last_word_t())
    check_kept(kept, "stalled", "gil-held", "target-1", samples=3)
    assert all(place in stacks for stacks in kept.stacks())
    check_quiet_afterwards(watch, [kept])


@pytest.mark.parametrize("how", ["busy", "asleep"])
def test_a_call_that_keeps_the_interpreter_lock_in_a_foreign_script_is_named(
    watched: Watched, how: str
) -> None:
    run = watched.foreign("gil_hold.py", "--how", how, "--at-step", 300)
    watch = watched.watch(run)
    watch.until_running()
    kept = watch.until_kept("gil-held")
    measure(f"GIL held, {how}, foreign", watch, "stalled", "gil-held", run.last_word_t())
    check_kept(kept, "stalled", "gil-held", "tokenizer-0", samples=3)
    assert all("hold" in stacks for stacks in kept.stacks())
    check_quiet_afterwards(watch, [kept])
