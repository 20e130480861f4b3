"""The fault table, each row as a story: what the run does, and what must be said about it."""

from __future__ import annotations

import msgspec
import pytest
from dflash_watch.engine import Engine
from dflash_watch.frame import ThreadSample, Tick
from scenarios.endings import failed_in_our_trainer
from scenarios.timeline import LOG, PID, Timeline, playbooks

WITHIN_S = 20.0


def check_stalled(run: Timeline, fault_t: float, failure: str, subject: str) -> None:
    assert (run.last.verdict, run.last.failure) == ("stalled", failure)
    assert run.last.subject == subject
    assert run.ready_t() - fault_t <= WITHIN_S
    assert len(run.incidents()) == 1
    assert run.last.incident.stack_labels == ("A", "B", "C")
    assert run.last.incident.stacks_missing is None


def test_a_stopped_process_is_stalled_and_named():
    run = Timeline.training()
    fault_t = run.t
    run.freeze()
    run.state, run.ticker_stopped_t = "T", run.t
    run.go(60)
    check_stalled(run, fault_t, "process-stopped", "run")


def test_a_lock_cycle_names_both_drafters_and_both_owners():
    run = Timeline.training()
    fault_t = run.t
    run.freeze()
    run.wait("drafter-0", "lock", on="drafter-1", lock="grads")
    run.wait("drafter-1", "lock", on="drafter-0", lock="weights")
    run.wait("target-0", "queue-put")
    run.wait("target-1", "queue-put")
    run.go(60)
    check_stalled(run, fault_t, "pipeline-deadlock", "drafter-0, drafter-1")
    told = " ".join(fact.text for fact in run.last.evidence)
    assert "lock grads owned by drafter-1" in told
    assert "lock weights owned by drafter-0" in told


def test_a_worker_that_fails_in_our_trainer_is_a_crash_with_its_name():
    run = failed_in_our_trainer()
    assert (run.last.verdict, run.last.failure) == ("crashed", "worker-died")
    assert run.last.subject == "target-1"
    assert len(run.incidents()) == 1
    assert "event" in run.last.incident.stacks_missing


def test_a_swallowed_exception_in_a_foreign_script_names_the_vanished_thread():
    run = Timeline.foreign(45)
    fault_t = run.t
    run.workers["target-1"].there = False
    run.go(2)
    run.freeze()
    run.go(60)
    check_stalled(run, fault_t, "worker-died", "target-1")
    assert "log-silent" in run.last.explains


@pytest.mark.parametrize("helper", [True, False])
def test_a_thread_that_is_no_worker_of_our_run_may_end(monkeypatch, helper):
    own, extra = Timeline._threads, ThreadSample(PID + 90, "python", "S", 40)
    there = [True]
    monkeypatch.setattr(
        Timeline, "_threads", lambda run: own(run) + ((extra,) if there[0] and helper else ())
    )
    run = Timeline.training(45)
    there[0] = False
    run.workers["target-1"].there = helper
    run.go(2)
    run.freeze()
    run.go(60)
    assert run.last.verdict == "stalled"
    assert (run.last.failure == "worker-died") is not helper


def test_the_log_of_an_autotuner_out_of_memory_then_silence(captures):
    run = Timeline.foreign(0, steps_per_s=0.0)
    run.go(10)
    run.say((captures / "autotune-oom-two-of-three-targets.log").read_text())
    run.go(2)
    fault_t = run.t
    run.freeze()
    run.go(60)
    assert (run.last.verdict, run.last.failure) == ("stalled", "triton-autotune-oom")
    assert run.ready_t() - fault_t <= WITHIN_S
    assert "target-" in run.last.subject


def test_a_drafter_that_stops_taking_is_named():
    run = Timeline.training()
    fault_t = run.t
    run.freeze()
    run.workers["drafter-1"].leaf = "drill.py:sleep"
    run.wait("drafter-0", "peer", on="drafter-1")
    run.wait("target-0", "queue-put")
    run.wait("target-1", "queue-put")
    run.go(60)
    check_stalled(run, fault_t, "drafter-idle", "drafter-1")


def test_a_target_that_stops_giving_is_named():
    run = Timeline.training()
    fault_t = run.t
    run.freeze()
    run.wait("drafter-0", "queue-get", on="target-0")
    run.wait("drafter-1", "queue-get", on="target-0")
    run.wait("target-1", "queue-put")
    run.go(60)
    check_stalled(run, fault_t, "target-idle", "target-0")


def test_a_busy_call_that_keeps_the_interpreter_lock_in_our_run():
    run = Timeline.training()
    fault_t = run.t
    run.freeze()
    run.cores, run.ticker_stopped_t = 1.0, run.t
    run.workers["target-0"].owns_gil = True
    run.go(60)
    check_stalled(run, fault_t, "gil-held", "target-0")


def test_a_sleeping_call_that_keeps_the_interpreter_lock_in_our_run():
    run = Timeline.training()
    fault_t = run.t
    run.freeze()
    run.ticker_stopped_t = run.t
    run.workers["target-0"].owns_gil = True
    run.go(60)
    check_stalled(run, fault_t, "gil-held", "target-0")


def test_a_busy_call_that_keeps_the_interpreter_lock_in_a_foreign_script():
    run = Timeline.foreign()
    fault_t = run.t
    run.freeze()
    run.cores = 1.0
    run.workers["target-0"].owns_gil = True
    run.go(60)
    check_stalled(run, fault_t, "gil-held", "target-0")


def test_the_reason_of_a_verdict_names_the_source_it_comes_from():
    run = Timeline.training()
    run.freeze()
    run.state, run.ticker_stopped_t = "T", run.t
    run.go(20)
    first = run.last.evidence[0]
    assert "state T" in first.text
    assert first.source == "process"


def test_sigkill_is_a_crash_without_stacks():
    run = Timeline.training()
    run.freeze()
    run.process = "gone"
    run.go(10)
    assert (run.last.verdict, run.last.failure) == ("crashed", "main-process-died")
    assert len(run.incidents()) == 1
    assert run.last.incident.stack_labels == ()
    assert "not there" in run.last.incident.stacks_missing


def test_a_run_that_wrote_its_own_error_is_not_said_to_have_died_without_a_word():
    run = Timeline.training()
    run.freeze()
    run.event("exit", code=1, reason="failed", message="ValueError: cpu tensor?")
    run.go(2)
    first = (run.last.verdict, run.last.failure, run.last.summary)
    run.process = "gone"
    run.go(10)
    assert first[:2] == ("crashed", "main-process-died")
    assert "ValueError: cpu tensor?" in run.last.summary
    assert (run.last.verdict, run.last.failure, run.last.summary) == first
    assert len(run.incidents()) == 1


def test_a_kill_by_the_cgroup_is_told_as_cause():
    run = Timeline.training()
    run.freeze()
    run.process, run.oom_kills = "gone", 1
    run.go(10)
    assert (run.last.verdict, run.last.failure) == ("crashed", "host-oom")
    assert "main-process-died" in run.last.explains
    assert any("out-of-memory" in fact.text for fact in run.last.evidence)


def test_a_kill_for_memory_long_before_the_end_is_no_cause():
    run = Timeline.training()
    run.oom_kills = 1
    run.go(30)
    run.freeze()
    run.process = "gone"
    run.go(10)
    assert run.last.failure == "main-process-died"
    assert not any("out-of-memory" in fact.text for fact in run.last.evidence)


def test_a_kill_for_memory_elsewhere_on_the_machine_is_a_hint_and_no_verdict():
    run = Timeline.foreign()
    run.process, run.log_mode, run.machine_oom_kills = "gone", "silent", 1
    run.go(10)
    assert (run.last.verdict, run.last.failure) == ("blind", "process-vanished")
    assert any("the machine's out-of-memory counter" in fact.text for fact in run.last.evidence)


def test_a_kernel_line_about_another_process_is_no_cause():
    run = Timeline.training()
    run.freeze()
    run.process, run.kernel = "gone", (f"Out of memory: Killed process 9{run.pid}9 (python3)",)
    run.go(10)
    assert run.last.failure == "main-process-died"
    assert not any("kernel" in fact.text for fact in run.last.evidence)


def test_a_zombie_main_process_is_a_crash():
    run = Timeline.training()
    run.freeze()
    run.process = "zombie"
    run.go(10)
    assert (run.last.verdict, run.last.failure) == ("crashed", "main-process-died")


def test_a_foreign_process_that_is_simply_gone_is_not_called_a_crash():
    run = Timeline.foreign()
    step = int(run.steps)
    run.process, run.log_mode = "gone", "silent"
    run.go(10)
    assert (run.last.verdict, run.last.failure) == ("blind", "process-vanished")
    assert f"its last line: 'step {step}/{run.total_steps} loss" in run.last.summary
    assert run.last.next[0].startswith(f"tail -n 20 {LOG}")
    told = [fact.text for fact in run.last.evidence]
    assert [text for text in told if text.startswith(f"process {run.pid}")] == told[:1]


def test_a_foreign_process_that_says_done_after_its_last_step_has_finished():
    run = Timeline.foreign(steps_per_s=10.0, total_steps=400)
    run.go(10)
    assert run.steps == run.total_steps
    run.say("done\n")
    run.process, run.log_mode = "gone", "silent"
    run.go(10)
    assert (run.last.verdict, run.last.failure) == ("finished", "healthy")


def test_the_word_done_before_the_last_step_says_nothing_of_the_end():
    run = Timeline.foreign()
    run.say("done\n")
    run.freeze()
    run.go(60)
    assert run.last.verdict == "stalled"
    run.process = "gone"
    run.go(10)
    assert (run.last.verdict, run.last.failure) == ("blind", "process-vanished")


def test_a_log_that_nobody_writes_any_more_is_told_without_a_process():
    run = Timeline.foreign()
    run.process, run.log_mode = "gone", "silent"
    frame = run.frame()
    note = "no process has /a.log open for writing"
    orphan = msgspec.structs.replace(frame.run, root_pid=None, note=note)
    engine = Engine(run.options, playbooks())
    for t in range(4):
        moment = {"t": frame.t + t, "boot_s": frame.boot_s + t, "seq": frame.seq + t}
        engine.advance(msgspec.structs.replace(frame, run=orphan, processes=(), **moment))
    last = engine.advance(Tick(t=frame.t + 4))
    assert last.summary.startswith(note)
    assert not [fact.text for fact in last.evidence if "None" in fact.text]


def test_a_run_that_says_it_is_done_and_stays_is_finished_with_exit_hang():
    run = Timeline.training()
    run.event("exit", code=0, reason="done")
    run.freeze()
    run.go(40)
    assert (run.last.verdict, run.last.failure) == ("finished", "exit-hang")


def test_a_lock_cycle_of_a_foreign_script_is_read_off_its_stacks():
    run = Timeline.foreign(45)
    fault_t = run.t
    run.freeze()
    for name in ("drafter-0", "drafter-1"):
        run.workers[name].leaf = "/usr/lib/python3.11/threading.py:acquire"
    for name in ("target-0", "target-1"):
        run.workers[name].leaf = "/usr/lib/python3.11/queue.py:put"
    run.go(60)
    check_stalled(run, fault_t, "pipeline-deadlock", "drafter-0, drafter-1")


def test_threads_that_all_wait_for_each_other_need_no_learned_limit():
    run = Timeline.foreign(1)
    run.freeze()
    for worker in run.workers.values():
        worker.leaf = "/usr/lib/python3.11/queue.py:get"
    run.go(25)
    assert not run.engine.limits.is_taught("training")
    assert (run.last.verdict, run.last.failure) == ("stalled", "pipeline-deadlock")


def test_threads_that_wait_for_the_outside_are_given_more_time():
    run = Timeline.foreign(1)
    run.freeze()
    for worker in run.workers.values():
        worker.leaf = "/usr/lib/python3.11/queue.py:get"
    run.workers["target-0"].leaf = "/usr/lib/python3.11/socket.py:recv_into"
    run.go(25)
    assert run.last.verdict == "running"


def test_a_worker_that_dies_before_any_limit_is_learned_is_still_missed():
    run = Timeline.foreign(2)
    run.workers["target-1"].there = False
    run.go(1)
    run.freeze()
    run.go(25)
    assert (run.last.verdict, run.last.failure) == ("stalled", "worker-died")
    assert run.last.subject == "target-1"


def test_stacks_that_are_refused_are_said_and_the_kernel_view_is_kept():
    run = Timeline.training(stacks_error="permission denied: ptrace")
    run.freeze()
    run.wait("drafter-0", "lock", on="drafter-1")
    run.wait("drafter-1", "lock", on="drafter-0")
    run.go(40)
    assert run.last.failure == "pipeline-deadlock"
    assert run.last.views["stacks"] == "gap: permission denied: ptrace"
    assert run.last.incident.ready


def test_stacks_that_never_come_do_not_keep_an_incident_waiting():
    run = Timeline.training(answers_stacks=False)
    run.freeze()
    run.go(60)
    assert run.last.verdict == "stalled"
    assert run.last.incident.ready
    assert "asked twice" in run.last.incident.stacks_missing


def test_nobody_is_called_idle_while_the_interpreter_lets_nobody_run():
    run = Timeline.training()
    run.freeze()
    run.ticker_stopped_t = run.t + 2.0
    run.wait("target-0", "queue-put")
    run.wait("target-1", "queue-put")
    run.go(40)
    assert run.last.failure == "gil-held"
    assert "drafter-idle" not in {one.failure for one in run.snapshots}
