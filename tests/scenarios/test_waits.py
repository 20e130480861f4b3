"""Runs that wait for something outside of the model: what is named, and what must not be."""

from __future__ import annotations

import pytest
from dflash_watch.frame import Disk, ProcessSample
from dflash_watch.model import RunOptions
from scenarios.timeline import PID, Timeline

LOADER = "/usr/lib/python3.11/queue.py:get;/s/torch/utils/data/dataloader.py:_get_data"
SHUTDOWN = (
    "/usr/lib/python3.11/multiprocessing/popen_fork.py:poll"
    ";/usr/lib/python3.11/multiprocessing/process.py:join"
    ";/s/torch/utils/data/dataloader.py:_shutdown_workers"
)
WORKER_IDLE = (
    "/usr/lib/python3.11/multiprocessing/queues.py:get"
    ";/s/torch/utils/data/_utils/worker.py:_worker_loop"
    ";/usr/lib/python3.11/multiprocessing/popen_fork.py:_launch"
)
FORKED_AT_LOCK = (
    "/usr/lib/python3.11/logging/__init__.py:acquire"
    ";/s/torch/utils/data/_utils/worker.py:_worker_loop"
    ";/usr/lib/python3.11/multiprocessing/popen_fork.py:_launch"
)


def child(pid: int, **changes: object) -> ProcessSample:
    base: dict[str, object] = {
        "pid": pid, "ppid": PID, "start_ticks": pid, "age_s": 30.0, "state": "S", "comm": "python",
        "cmd": "python train.py", "is_python": True, "cpu_ticks": 40, "num_threads": 1,
    }  # fmt: skip
    return ProcessSample(**{**base, **changes})  # type: ignore[arg-type]


def loop(**changes: object) -> Timeline:
    """A plain script with one thread, healthy for half a minute."""
    return Timeline.foreign(30, crew=(), **changes)


def stand(run: Timeline, leaf: str, seconds: float = 60) -> None:
    """From here on the main thread stands there and nothing moves."""
    run.freeze()
    run.main_leaf = leaf
    run.go(seconds)


def named(run: Timeline) -> tuple[str, str]:
    return run.last.verdict.value, run.last.failure


# -- the data loader ---------------------------------------------------------------------------


@pytest.mark.parametrize(("leaf", "words"), [(LOADER, "does not give"), (SHUTDOWN, "to end")])
def test_a_loader_that_gives_nothing_is_named_with_its_stage(leaf, words):
    run = loop(extra_processes=(child(4100),), child_leaves={4100: WORKER_IDLE})
    stand(run, leaf)
    assert named(run) == ("stalled", "dataloader-stuck")
    assert words in run.last.summary
    told = " ".join(fact.text for fact in run.last.evidence)
    assert "process 4100, a worker of it, stands in get" in told
    assert run.last.incident.stack_labels == ("A", "B", "C")


def test_a_loader_that_is_slow_and_works_is_not_stuck():
    run = loop()
    run.stop_steps()
    run.main_leaf, run.log_mode = LOADER, "silent"
    run.go(60)
    assert run.last.verdict == "quiet"
    assert "dataloader-stuck" not in {one.failure for one in run.snapshots}


def test_a_thread_in_its_own_queue_is_no_data_loader():
    run = loop()
    stand(run, "/usr/lib/python3.11/queue.py:get;pipeline.py:take")
    assert run.last.failure != "dataloader-stuck"


def test_a_worker_that_was_forked_with_a_lock_held_is_the_cause_of_the_silent_loader():
    run = loop(extra_processes=(child(4100),), child_leaves={4100: FORKED_AT_LOCK},
               main_changes={"num_threads": 9})  # fmt: skip
    stand(run, LOADER)
    assert named(run) == ("stalled", "fork-after-threads")
    assert run.last.subject == "process 4100"
    assert "dataloader-stuck" in run.last.explains
    assert any("has 9 threads" in fact.text for fact in run.last.evidence)


def test_a_loader_worker_that_vanished_is_the_cause():
    run = loop(extra_processes=(child(4100), child(4101)))
    run.extra_processes = (child(4101),)
    run.go(1)
    stand(run, LOADER)
    assert named(run) == ("stalled", "dataloader-worker-died")
    assert run.last.subject == "process 4100"


def test_a_loader_worker_that_ended_by_a_signal_is_named_though_steps_go_on():
    run = loop(extra_processes=(child(4100, state="Z", exit_code=11),))
    run.go(10)
    assert named(run) == ("running", "dataloader-worker-died")
    assert "signal 11" in run.last.summary


def test_loader_workers_that_end_with_their_epoch_are_no_deaths():
    run = loop(extra_processes=(child(4100), child(4101)))
    run.extra_processes = ()
    run.go(30)
    assert named(run) == ("running", "healthy")


def test_slow_input_is_the_cause_of_low_throughput():
    run = Timeline.training(30, options=RunOptions(expect_tokens_per_s=6000.0))
    run.tokens_per_s, run.wait_shares = 1500.0, {"target-0": {"queue-get": 0.8}}
    run.go(120)
    assert named(run) == ("slow", "input-starved")


def test_a_run_that_waits_for_input_and_is_as_fast_as_ever_is_well():
    run = Timeline.training(30, wait_shares={"target-0": {"queue-get": 0.8}})
    run.go(60)
    assert named(run) == ("running", "healthy")


# -- locks on files, loggers -------------------------------------------------------------------

BATON = "/s/torch/utils/file_baton.py:wait;/s/torch/utils/cpp_extension.py:_jit_compile"


def test_a_lock_file_that_nobody_gives_back_is_named_before_the_first_step():
    run = Timeline.foreign(0, crew=(), steps_per_s=0.0, cores=0.0, log_mode="silent")
    run.main_leaf = BATON
    run.go(180)
    assert named(run) == ("stalled", "file-lock-wait")


def test_a_lock_file_whose_holder_builds_in_the_same_run_is_no_fault():
    compiler = child(4100, comm="cc1plus", cmd="cc1plus", is_python=False, state="R")
    run = Timeline.foreign(0, crew=(), steps_per_s=0.0, log_mode="silent")
    run.main_leaf, run.extra_processes = BATON, (compiler,)
    run.go(180)
    assert named(run) == ("initialising", "compile-in-progress")
    assert run.incidents() == []


def test_a_tracker_that_does_not_return_is_named():
    run = loop()
    stand(run, "/usr/lib/python3.11/threading.py:wait;/s/wandb/sdk/mailbox.py:wait;train.py:log")
    assert named(run) == ("stalled", "logger-blocked")


def test_the_service_thread_of_a_tracker_is_not_what_the_run_waits_for():
    run = Timeline.foreign(30, crew=("tracker",))
    run.workers[
        "tracker"
    ].leaf = "/usr/lib/python3.11/queue.py:get;/s/wandb/sdk/internal/run.py:loop"
    stand(run, "/usr/lib/python3.11/socket.py:recv_into;train.py:fetch")
    assert run.last.failure != "logger-blocked"


# -- storage -----------------------------------------------------------------------------------


def test_a_process_in_a_network_file_system_is_named():
    run = loop()
    run.state, run.wchan = "D", "rpc_wait_bit_killable"
    stand(run, "train.py:read", 30)
    assert named(run) == ("stalled", "storage-stuck")
    assert run.last.subject == "run"


def test_a_process_in_the_driver_of_the_cards_is_no_matter_of_storage():
    run = loop()
    run.state, run.wchan = "D", "uvm_va_space_ioctl"
    stand(run, "train.py:step", 30)
    assert run.last.verdict == "stalled"
    assert run.last.failure != "storage-stuck"


def test_a_loader_worker_in_a_dead_mount_is_the_cause_of_the_silent_loader():
    run = loop(extra_processes=(child(4100),))
    run.extra_processes = (child(4100, state="D", wchan="nfs4_wait"),)
    stand(run, LOADER)
    assert named(run) == ("stalled", "storage-stuck")
    assert run.last.subject == "process 4100"
    assert "dataloader-stuck" in run.last.explains


# -- room --------------------------------------------------------------------------------------


def disk(what: str, path: str, free_bytes: int, total_bytes: int = 64 << 30) -> Disk:
    return Disk(path=path, what=what, free_bytes=free_bytes, total_bytes=total_bytes)


@pytest.mark.parametrize(
    ("room", "failure"),
    [
        (disk("log", "/runs/a", 0), "disk-full"),
        (disk("run-dir", "/runs/a", 100), "disk-full"),
        (disk("shm", "/dev/shm", 0, 64 << 20), "shm-full"),
        (disk("log", "/runs/a", 3 << 30), "healthy"),
        (disk("log", "/runs/a", 192 << 10, 200 << 10), "healthy"),
        (disk("log", "/runs/a", 0, 200 << 10), "disk-full"),
        (disk("tmp", "/tmp", 0), "healthy"),
        (disk("shm", "/dev/shm", 8 << 20, 64 << 20), "healthy"),
    ],
)
def test_a_full_disk_is_named_while_steps_still_go_on(room, failure):
    run = loop(host={"disks": (room,)})
    assert named(run) == ("running", failure)


def test_a_run_that_dies_of_a_full_disk_did_not_die_of_itself():
    run = loop(host={"disks": (disk("log", "/runs/a", 0),)})
    run.say("Traceback (most recent call last):\n  File \"t.py\", line 3, in <module>\n"
            "OSError: [Errno 28] No space left on device\n")  # fmt: skip
    run.process, run.log_mode = "gone", "silent"
    run.go(10)
    assert named(run) == ("crashed", "disk-full")


@pytest.mark.parametrize(("num_fds", "failure"), [(1020, "fd-exhausted"), (700, "healthy")])
def test_descriptors_at_their_limit_are_named(num_fds, failure):
    run = loop(main_changes={"num_fds": num_fds, "fd_limit": 1024})
    assert named(run) == ("running", failure)


def test_a_worker_killed_for_memory_is_named_by_the_kernels_words():
    run = loop(extra_processes=(child(4100),))
    run.extra_processes, run.kernel = (
        (),
        ("Out of memory: Killed process 4100 (python) total-vm:9",),
    )
    run.go(3)
    assert named(run) == ("running", "host-oom")
    assert run.last.subject == "process 4100"


# -- phases, views -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("phase", "failure"),
    [("evaluating", "eval-in-progress"), ("checkpointing", "checkpoint-in-progress")],
)
def test_a_phase_that_explains_silence_is_named_and_over_when_steps_go_on(phase, failure):
    run = Timeline.training(30)
    run.event("phase", name=phase, edge="begin", budget_s=600.0)
    run.freeze()
    run.go(100)
    assert named(run) == ("quiet", failure)
    run.event("phase", name=phase, edge="end")
    run.steps_per_s, run.cores = 12.0, 1.2
    for worker in run.workers.values():
        worker.works = True
    run.go(10)
    assert named(run) == ("running", "healthy")
    assert run.incidents() == []


@pytest.mark.parametrize(
    ("comm", "cmd"), [("ssh", "ssh box python train.py"), ("tail", "tail -f train.log"),
                      ("docker", "docker exec -it box python train.py")],
)  # fmt: skip
def test_a_client_is_not_the_run(comm, cmd):
    run = Timeline.foreign(0, crew=(), steps_per_s=0.0, cores=0.0, log_mode="none",
                           main_changes={"comm": comm, "cmd": cmd, "is_python": False})  # fmt: skip
    run.go(30)
    assert named(run) == ("blind", "wrong-process")
    assert run.incidents() == []


def test_a_worker_of_a_cluster_without_orders_is_not_the_run():
    run = Timeline.foreign(0, crew=(), steps_per_s=0.0, cores=0.0, log_mode="silent")
    run.main_leaf = "/s/ray/_private/worker.py:main_loop;/s/ray/workers/default_worker.py:<module>"
    run.go(150)
    assert run.last.failure == "wrong-process"


def test_a_shell_that_waits_for_its_training_is_the_right_process():
    run = Timeline.foreign(0, crew=(), steps_per_s=3.0,
                           main_changes={"comm": "bash", "cmd": "bash run.sh", "is_python": False},
                           extra_processes=(child(4100),))  # fmt: skip
    run.go(40)
    assert named(run) == ("running", "healthy")


def test_the_uptime_of_a_container_is_told_and_judges_nobody():
    run = loop(host={"uptime_s": 30.0})
    assert named(run) == ("running", "healthy")
    assert "ps-clock-artefact" in {one.failure for one in run.last.candidates}


def test_a_machine_whose_clocks_agree_has_no_artefact():
    run = loop()
    run.host = {"uptime_s": run.boot_s}
    run.go(3)
    assert "ps-clock-artefact" not in {one.failure for one in run.last.candidates}


def test_a_save_that_nobody_announced_is_seen_by_what_is_written():
    run = loop()
    run.stop_steps()
    run.log_mode, run.cores = "silent", 0.0
    for second in range(60):
        run.main_changes = {"wchar": second * (30 << 20)}
        run.go(1)
    assert named(run) == ("quiet", "checkpoint-in-progress")
    assert "writes 30.0 MiB/s" in run.last.summary
    assert run.incidents() == []


def test_a_log_that_is_written_while_nothing_else_moves_is_no_save():
    run = loop()
    run.freeze()
    for second in range(60):
        run.main_changes = {"wchar": second * 4096}
        run.go(1)
    assert run.last.failure != "checkpoint-in-progress"


def test_weights_that_are_read_before_the_first_step_are_a_load():
    run = Timeline.foreign(0, crew=(), steps_per_s=0.0, log_mode="none")
    for second in range(30):
        run.main_changes = {"rchar": second * (200 << 20)}
        run.go(1)
    assert named(run) == ("initialising", "loading")


def test_a_compiler_that_is_parked_compiles_nothing():
    parked = child(4100, comm="ninja", cmd="ninja", is_python=False, cpu_ticks=3)
    run = Timeline.foreign(0, crew=(), steps_per_s=0.0, log_mode="silent")
    run.extra_processes = (parked,)
    run.go(40)
    assert run.last.failure != "compile-in-progress"


def test_an_evaluation_whose_loader_gives_nothing_is_no_excuse_for_ever():
    run = loop()
    stand(run, LOADER + ";/s/transformers/trainer.py:evaluation_loop", 60)
    assert named(run) == ("quiet", "eval-in-progress")
    assert run.incidents() == []
    run.go(120)
    assert named(run) == ("stalled", "dataloader-stuck")
    assert run.verdicts()[-2:] == ["quiet", "stalled"]


def test_an_evaluation_of_this_run_teaches_how_long_the_next_may_take():
    run = Timeline.training(30)
    for _ in range(2):
        run.event("phase", name="evaluating", edge="begin")
        run.stop_steps()
        run.go(100)
        limit = run.last.limit
        run.event("phase", name="evaluating", edge="end")
        run.steps_per_s = 12.0
        run.go(5)
    assert limit.seconds == pytest.approx(600.0, abs=20.0)
    assert "6 x the longest so far" in limit.why


def test_a_run_that_was_seen_before_begins_with_what_it_taught():
    first = loop()
    key, profile = first.engine.profile
    again = Timeline.foreign(4, crew=(), steps_per_s=1.0, profiles={key: profile})
    assert "earlier runs of this command" in again.engine.limits.limit("training").why


def test_ranks_that_are_silent_are_sampled_before_a_collective_gives_up():
    ranks = tuple(child(4100 + i, rank=i, cmd="python -u train.py") for i in range(2))
    run = Timeline.foreign(30, crew=(), steps_per_s=1 / 120.0, extra_processes=ranks)
    run.go(1500, every_s=5.0)
    run.stop_steps()
    run.go(400, every_s=5.0)
    asked = {(one.label, one.pid) for one in run.asked if one.label != "census"}
    assert {("A", 4100), ("A/4101", 4101), (f"A/{PID}", PID)} <= asked


@pytest.mark.parametrize(
    "line",
    [
        "[100.0] Memory cgroup out of memory: Killed process 30741 (python) total-vm:274676kB",
        "[100.0] oom-kill:constraint=CONSTRAINT_MEMCG,task=python,pid=30741,uid=0",
        "[100.0] Out of memory: Killed process 1 (nobody)",
    ],
)
def test_the_kernels_word_about_a_stranger_is_nothing_of_this_run(line):
    run = loop()
    run.kernel = (line.replace("100.0", f"{run.boot_s:.1f}"),)
    run.go(40)
    assert named(run) == ("running", "healthy")
    assert run.incidents() == []


def test_below_a_launcher_rank_0_is_what_is_looked_at():
    ranks = tuple(child(4100 + i, rank=i, cmd="python -u train.py") for i in range(2))
    run = loop(extra_processes=ranks)
    assert run.engine.window.main_pid() == 4100
    run.child_leaves = {4100: LOADER, 4101: "/s/torch/distributed/distributed_c10d.py:all_reduce"}
    run.freeze()
    run.go(60)
    assert named(run) == ("stalled", "dataloader-stuck")
    assert {one.pid for one in run.asked if one.label == "A"} == {4100}
