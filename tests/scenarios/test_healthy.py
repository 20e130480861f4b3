"""Runs that are well, and must be left in peace."""

from __future__ import annotations

import pytest
from dflash_watch.frame import ProcessSample
from scenarios.timeline import Timeline


def test_a_healthy_run_from_start_to_finish():
    run = Timeline.ours(steps_per_s=0.0)
    run.go(8)
    run.begin_training()
    run.steps_per_s = 12.0
    run.go(90)
    run.event("exit", code=0, reason="done")
    run.freeze()
    run.go(1)
    run.process = "gone"
    run.go(5)
    assert run.verdicts() == ["initialising", "running", "finished"]
    assert run.incidents() == []
    assert run.last.failure == "healthy"


def test_a_long_goodbye_on_a_busy_machine_is_no_hang():
    run = Timeline.training(30)
    run.event("exit", code=0, reason="done")
    run.freeze()
    run.cores, run.state = 0.01, "R"  # a hundredth of a core is all it gets
    run.go(40)
    run.cores, run.state = 0.07, "S"
    run.go(40)
    run.process = "gone"
    run.go(5)
    assert run.verdicts()[-2:] == ["running", "finished"]
    assert run.incidents() == []
    assert run.last.failure == "healthy"


def test_a_healthy_foreign_script_with_nothing_but_a_log():
    run = Timeline.foreign(5, steps_per_s=0.0)
    run.steps_per_s = 3.0
    run.go(90)
    run.say("Training finished.\n")
    run.freeze()
    run.go(1)
    run.process = "gone"
    run.go(5)
    assert run.verdicts() == ["initialising", "running", "finished"]
    assert run.incidents() == []


@pytest.mark.parametrize("make", [Timeline.training, Timeline.foreign])
def test_a_busy_machine_makes_steps_late_and_no_alarm(make):
    run = make(30)
    for pause_s in (3, 5, 2, 6, 4, 6):
        run.steps_per_s = 0.0
        run.go(pause_s)
        run.steps_per_s = 4.0
        run.go(4)
    assert run.verdicts() == ["initialising", "running"]
    assert run.incidents() == []


def test_a_long_first_compile_is_initialising():
    run = Timeline.ours(steps_per_s=0.0)
    run.event("phase", name="tuning", edge="begin", budget_s=600.0, worker="target-0")
    run.go(240)
    assert run.verdicts() == ["initialising"]
    assert run.last.failure == "compile-in-progress"
    assert run.incidents() == []


def test_a_long_first_compile_of_a_foreign_script_is_seen_in_its_stacks():
    run = Timeline.foreign(0, steps_per_s=0.0, log_mode="silent")
    run.workers["target-0"].leaf = "/site/torch/_inductor/scheduler.py:codegen"
    run.go(120)
    assert (run.last.verdict, run.last.failure) == ("initialising", "compile-in-progress")
    assert run.incidents() == []


def test_a_parked_compile_pool_is_not_compiling():
    run = Timeline.foreign(0, steps_per_s=0.0, log_mode="silent")
    run.workers["target-0"].leaf = "/site/torch/_inductor/compile_worker/subproc_pool.py:_read"
    run.go(60)
    assert run.last.failure != "compile-in-progress"


def test_a_busy_compiler_child_is_compiling():
    run = Timeline.foreign(0, steps_per_s=0.0, log_mode="silent")
    run.extra_processes = (
        ProcessSample(
            pid=9, ppid=1, start_ticks=3, age_s=3.0, state="R", comm="ptxas", cmd="ptxas"
        ),
    )
    run.go(60)
    assert run.last.failure == "compile-in-progress"


@pytest.mark.parametrize("make", [Timeline.training, Timeline.foreign])
def test_a_compiler_that_ends_while_steps_wait_for_it_is_no_dead_worker(make):
    run = make(30)
    run.freeze()
    run.cores = 1.0
    for pid in range(900, 912):
        run.extra_processes = (
            ProcessSample(
                pid=pid, ppid=1, start_ticks=pid, age_s=3.0, state="R", comm="ptxas", cmd="ptxas"
            ),
        )
        run.go(4)
    run.extra_processes = ()
    for worker in run.workers.values():
        worker.works = True
    run.steps_per_s, run.cores, run.log_mode = 12.0, 1.2, "lines"
    run.go(10)
    assert all(one.failure != "worker-died" for one in run.snapshots)
    assert run.incidents() == []


def test_the_tracebacks_of_an_earlier_run_in_the_same_log_are_not_this_runs():
    old = "error: target-0 failed: OutOfMemoryError\nTraceback (most recent call last):\n"
    old += '  File "x.py", line 1, in f\nRuntimeError: boom\nException in thread target-0:\n'
    run = Timeline.ours(steps_per_s=0.0, log_start_bytes=len(old.encode()))
    run.say(old)
    run.say("target-0 loads\n")
    run.go(20)
    assert run.last.verdict == "initialising"
    assert not any(one.name == "worker-failed" for one in run.last.symptoms)
    assert run.last.board.log.lines[-1] == "target-0 loads"


def test_a_log_that_is_cut_while_a_resumed_run_is_watched_loses_no_line():
    run = Timeline.ours(log_start_bytes=500)
    run.say("x" * 499 + "\n")
    run.go(5)
    run.log_changes = {"truncated": True, "offset": 0, "size_bytes": 11}
    run.say("after cut\n\n")
    run.go(1)
    assert "after cut" in run.last.board.log.lines


@pytest.mark.parametrize("phase", ["checkpointing", "evaluating"])
def test_an_announced_phase_is_quiet_and_no_incident(phase):
    run = Timeline.training(60)
    run.event("phase", name=phase, edge="begin", budget_s=300.0)
    run.freeze()
    run.go(60)
    assert run.last.verdict == "quiet"
    assert run.last.limit.seconds == 300.0
    run.event("phase", name=phase, edge="end")
    for worker in run.workers.values():
        worker.works = True
    run.steps_per_s, run.cores, run.log_mode = 12.0, 1.2, "lines"
    run.go(20)
    assert run.last.verdict == "running"
    assert run.incidents() == []


def test_a_slow_save_that_nobody_announced_is_seen_in_the_stacks():
    run = Timeline.foreign(60)
    run.freeze()
    run.io_per_s = 5e6
    run.workers["target-0"].leaf = "/x/train.py:save_checkpoint"
    run.go(40)
    assert run.last.verdict == "quiet"
    run.steps_per_s, run.cores, run.log_mode, run.io_per_s = 12.0, 1.2, "lines", 0.0
    run.workers["target-0"].leaf = "model.py:forward"
    run.go(20)
    assert run.last.verdict == "running"
    assert run.incidents() == []


def test_a_slow_save_without_io_is_believed_when_the_stack_shows_it():
    run = Timeline.foreign(60)
    run.freeze()
    run.workers["target-0"].leaf = "/x/train.py:save_checkpoint"
    run.go(60)
    assert run.last.verdict == "quiet"
    assert run.incidents() == []


def test_a_paused_loader_over_going_steps_is_running():
    run = Timeline.training(30, crew=("loader-0", "target-0", "drafter-0"))
    run.workers["loader-0"].wait, run.workers["loader-0"].wait_since_t = "io", run.t
    run.go(40)
    assert run.verdicts() == ["initialising", "running"]
    assert run.incidents() == []


def test_a_thread_that_ends_as_it_should_is_no_death():
    run = Timeline.foreign(30)
    run.workers["target-1"].there = False
    run.go(60)
    assert run.last.verdict == "running"
    assert run.last.failure == "healthy"
    assert run.incidents() == []


def test_another_run_in_the_same_directory_begins_anew():
    run = Timeline.training(30)
    run.event("exit", code=0, reason="done")
    run.go(1)
    run.process = "gone"
    run.go(5)
    run.restart()
    run.steps_per_s = 0.0
    run.event("phase", name="loading", edge="begin")
    run.go(5)
    run.begin_training()
    run.steps_per_s = 12.0
    run.go(20)
    assert run.verdicts() == ["initialising", "running", "finished", "initialising", "running"]
    assert run.incidents() == []


def test_stopped_on_request_is_finished():
    run = Timeline.training(30)
    run.event("exit", code=75, reason="stopped", message="SIGTERM; checkpoint written")
    run.process = "gone"
    run.go(5)
    assert run.last.verdict == "finished"
    assert run.incidents() == []


TRACEBACK = """\
Exception in thread {name}:
Traceback (most recent call last):
  File "/x/train.py", line 7, in run
    step(batch)
ValueError: bad batch
"""


def test_an_exception_of_a_thread_that_lives_on_is_no_death():
    run = Timeline.foreign(30)
    run.say(TRACEBACK.format(name="target-1"))
    run.go(30)
    assert (run.last.verdict, run.last.failure) == ("running", "healthy")
    assert run.incidents() == []


def test_an_exception_of_a_thread_that_is_gone_is_a_death_though_steps_go_on():
    run = Timeline.foreign(30)
    run.say(TRACEBACK.format(name="target-1"))
    run.workers["target-1"].there = False
    run.go(30)
    assert (run.last.verdict, run.last.failure) == ("running", "worker-died")
    assert (run.last.subject, run.last.severity) == ("target-1", "critical")


def test_numbers_in_the_log_of_our_own_run_are_no_steps():
    run = Timeline.ours(steps_per_s=0.0)
    run.go(2)
    for step in range(20):
        run.say(f"teaching the target: {step}/60 loss 0.4\n")
        run.go(1)
    assert (run.last.verdict, run.last.failure) == ("initialising", "loading")


def test_a_drafter_that_waits_for_a_core_is_not_idle():
    run = Timeline.training(30)
    drafter = run.workers["drafter-1"]
    drafter.works = False  # no step of its own, and hardly a tick
    run.depth = 4
    for _ in range(14):
        drafter.ticks += 1
        run.state = "R"
        run.go(1)
        assert run.last.failure != "drafter-idle"
    assert run.incidents() == []


def test_the_last_bars_of_a_trainer_behind_its_closing_word_take_nothing_back():
    run = Timeline.foreign(30, log_mode="bar")
    run.stop_steps()
    run.say("\r{'train_runtime': '1200', 'train_loss': '0.1', 'epoch': '2.0'}\n")
    run.say(f"\r  0%|  | {int(run.steps) + 2}/{run.total_steps} [00:31<09:00, 9.00it/s]\n")
    run.say("\rWriting model shards: 100%|#####| 1/1 [00:00<00:00, 935.60it/s]")
    run.log_mode = "silent"
    run.go(1)
    run.process = "gone"
    run.go(5)
    assert (run.last.verdict, run.last.failure) == ("finished", "healthy")


def loader_workers(*pids: int) -> tuple[ProcessSample, ...]:
    return tuple(
        ProcessSample(pid=pid, ppid=4000, start_ticks=pid, age_s=30.0, state="S", is_python=True,
                      comm="pt_data_worker", cmd="python train.py", cpu_ticks=50)
        for pid in pids
    )  # fmt: skip


def test_a_pool_of_workers_that_leaves_together_before_a_slow_end_is_no_death():
    run = Timeline.foreign(30, extra_processes=loader_workers(4100, 4101))
    run.stop_steps()
    run.log_mode, run.extra_processes = "silent", ()
    run.go(11)
    assert "worker-died" not in {one.failure for one in run.snapshots}


def test_one_of_several_workers_that_vanishes_before_the_silence_is_a_death():
    run = Timeline.foreign(30, extra_processes=loader_workers(4100, 4101))
    run.extra_processes = loader_workers(4101)
    run.freeze()
    run.go(40)
    assert run.last.failure == "worker-died"
