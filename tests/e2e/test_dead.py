"""Faults in which a worker or the whole process is gone."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from e2e.faults import check_kept, check_quiet_afterwards, measure
from e2e.watched import Watched

pytestmark = [pytest.mark.e2e, pytest.mark.ssh, pytest.mark.lxc]
CAPTURES = Path(__file__).resolve().parents[1] / "scenarios" / "captures"


def test_a_target_that_raises_in_mid_epoch_is_a_crash_with_its_name(watched: Watched) -> None:
    run = watched.tiny("drill.fault=raise", "drill.at_step=60", "drill.worker=target-1")
    watch = watched.watch(run)
    assert run.process.wait(150) == 1
    kept = watch.until_kept("worker-died")
    failed = next(event for event in run.events() if event["kind"] == "worker-failed")
    measure("target raises", watch, "crashed", "worker-died", failed["t"])
    check_kept(kept, "crashed", "worker-died", "target-1", samples=1)
    assert "the trainer's own event carries the traceback" in kept.report
    (traceback,) = kept.stacks()
    assert "target-1, from its worker-failed event" in traceback
    assert "DrillError: drill: target-1 was told to fail" in traceback
    check_quiet_afterwards(watch, [kept])


def test_an_exception_swallowed_by_a_foreign_script_names_the_thread_that_is_gone(
    watched: Watched,
) -> None:
    run = watched.foreign("swallowing_pipeline.py", "--fail", "target-1", "--at-step", 300)
    watch = watched.watch(run)
    watch.until_running()
    kept = watch.until_kept("worker-died")
    measure("target raises, swallowed, foreign", watch, "stalled", "worker-died", run.last_word_t())
    check_kept(kept, "stalled", "worker-died", "target-1", samples=3)
    for stacks in kept.stacks():
        assert "drafter-0" in stacks
        assert "target-1" not in stacks
    check_quiet_afterwards(watch, [kept])


def test_the_log_of_an_autotuner_out_of_memory_then_silence(watched: Watched) -> None:
    run = watched.foreign(
        "autotune_oom.py", "--steps", 40,
        "--log", watched.give(CAPTURES / "autotune-oom-two-of-three-targets.log"),
    )  # fmt: skip
    watch = watched.watch(run)
    kept = watch.until_kept("triton-autotune-oom")
    measure("autotuner out of memory", watch, "stalled", "triton-autotune-oom", run.last_word_t())
    check_kept(kept, "stalled", "triton-autotune-oom", "target-1, target-2", samples=3)
    # Its log says DIED, and of what, before it says in which call.
    check_quiet_afterwards(watch, [kept], "worker-died", "cuda-oom")


def test_a_run_killed_for_memory_by_its_cgroup_is_a_crash_and_that_is_said(
    watched: Watched,
) -> None:
    run = watched.tiny()
    watch = watched.watch(run, "--no-host-agent")  # what the container itself can tell
    watch.until_running()
    watched.container.limit_memory(watched.container.memory() + (8 << 20))
    hog = "import time; x = bytearray(64 << 20); time.sleep(1)"
    watched.container.run([watched.container.python, "-S", "-c", hog])
    kept = watch.until_kept("host-oom")
    check_kept(kept, "crashed", "host-oom", "run", samples=0)
    assert "the out-of-memory counter of its cgroup rose" in kept.report
    check_quiet_afterwards(watch, [kept])


def test_a_foreign_process_that_is_simply_gone_is_blind_and_not_called_a_crash(
    watched: Watched,
) -> None:
    run = watched.foreign("plain_loop.py", "--steps", 100_000)
    watch = watched.watch(run)
    watch.until_running()
    killed_t = run.signal(signal.SIGKILL)
    watch.until_verdict("blind", "process-vanished")
    measure("SIGKILL, foreign", watch, "blind", "process-vanished", killed_t)
    watch.goes_on(8)
    assert watch.verdicts()[-2:] == ["running", "blind"], watch.told()
    assert all(not kept.stacks() for kept in watch.incidents()), watch.told()
    assert len(watch.incidents()) <= 1, watch.told()


def test_a_run_that_says_it_is_done_and_stays_is_finished_with_its_exit_hanging(
    watched: Watched,
) -> None:
    run = watched.foreign("exit_hang.py", "--steps", 60)
    watch = watched.watch(run)
    kept = watch.until_kept("exit-hang")
    measure("exit hangs, foreign", watch, "finished", "exit-hang", run.last_word_t())
    check_kept(kept, "finished", "exit-hang", "run", samples=3)
    assert any("uploader" in stacks for stacks in kept.stacks())
    assert watch.verdicts()[-1] == "finished", watch.told()
    check_quiet_afterwards(watch, [kept])
