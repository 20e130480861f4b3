"""Each foreign program does what its docstring says, on a bare Python."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import pythons

HERE = Path(__file__).parent
DEADLINE_S = 120
PYTHONS = {"ours": lambda: sys.executable, "another": pythons.another}


@contextlib.contextmanager
def running(tmp_path, name, *arguments, python=sys.executable):
    """The program with its output in a file, as a user redirects it; killed at the end."""
    log = tmp_path / "run.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [python, "-I", "-S", HERE / name, *map(str, arguments)],
            stdout=out,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
        )
    try:
        yield process, log
    finally:
        process.kill()
        process.wait()


def until(true, what):
    end = time.monotonic() + DEADLINE_S
    while not true():
        assert time.monotonic() < end, f"{what} did not happen within {DEADLINE_S} s"
        time.sleep(0.02)


def threads(process):
    """Of each thread: state and ticks used."""
    found = {}
    for task in Path(f"/proc/{process.pid}/task").iterdir():
        fields = (task / "stat").read_text().rsplit(")", 1)[1].split()
        found[int(task.name)] = (fields[0], int(fields[11]) + int(fields[12]))
    return found


def silent(log):
    """The log does not grow over a tenth of a second."""
    size = log.stat().st_size
    time.sleep(0.1)
    return log.stat().st_size == size


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [
        ("plain_loop.py", ["--steps", 5, "--step-s", 0.01], "step 5/5 loss"),
        ("hf_like_loop.py", ["--steps", 20, "--step-s", 0.005, "--eval-steps", 10], "'loss': "),
        ("progress_bar_only.py", ["--steps", 5, "--step-s", 0.01], "5/5 ["),
        ("slow_start.py", ["--quiet-s", 0.5, "--steps", 2, "--step-s", 0.01], "step 2/2"),
        ("block_buffered.py", ["--steps", 5, "--step-s", 0.01], "step 5/5"),
        ("swallowing_pipeline.py", ["--steps", 9, "--step-s", 0.01, "--fail", "none"], "step=8"),
        ("exit_hang.py", ["--steps", 3, "--step-s", 0.01, "--hang-s", 0.2], "training finished"),
        ("busy_machine.py", ["--seconds", 0.3, "--processes", 2], "2 processes busy"),
    ],
)
def test_programs_that_end_by_themselves_end_well(tmp_path, python, name, arguments, says):
    with running(tmp_path, name, *arguments, python=PYTHONS[python]()) as (process, log):
        assert process.wait(DEADLINE_S) == 0, log.read_text()
        assert says in log.read_text()


def test_checkpointing_is_silent_while_it_writes_and_goes_on(tmp_path):
    arguments = ["--steps", 4, "--every", 2, "--step-s", 0.01, "--write-s", 0.4]
    with running(tmp_path, "checkpointing_loop.py", *arguments, "--dir", tmp_path) as (
        process,
        log,
    ):
        until(lambda: "Saving model checkpoint" in log.read_text(), "the checkpoint")
        until(lambda: silent(log), "silence")
        assert process.wait(DEADLINE_S) == 0
        assert "step 4/4" in log.read_text()
    assert (tmp_path / "step-2.bin").exists()


def test_the_bar_never_ends_a_line(tmp_path):
    with running(tmp_path, "progress_bar_only.py", "--steps", 5, "--step-s", 0.01) as (
        process,
        log,
    ):
        process.wait(DEADLINE_S)
        text = log.read_bytes()
    assert text.count(b"\r") == 6
    assert b"\n" not in text


@pytest.mark.parametrize(("shows", "option"), [(False, []), (True, ["--print-traceback"])])
def test_a_swallowed_exception_dries_the_pipeline(tmp_path, shows, option):
    arguments = ["--at-step", 5, "--step-s", 0.01, *option]
    with running(tmp_path, "swallowing_pipeline.py", *arguments) as (process, log):
        until(lambda: len(threads(process)) == 5, "five threads")
        until(lambda: len(threads(process)) == 4, "the end of one target")
        until(lambda: silent(log), "silence")
        assert process.poll() is None
        text = log.read_text()
    assert ("Traceback" in text) is shows
    assert "step=4 " in text
    assert "step=6 " not in text


def test_after_the_tuning_log_idle_threads_remain(tmp_path):
    given = tmp_path / "given.log"
    given.write_text("target 2 DIED OutOfMemoryError\n" * 3)
    arguments = ["--log", given, "--lines-per-s", 500, "--steps", 2, "--step-s", 0.01]
    with running(tmp_path, "autotune_oom.py", *arguments) as (process, log):
        until(lambda: log.read_text().count("DIED") == 3, "the given text")
        until(lambda: len(threads(process)) == 4, "the end of two of five workers")
        assert process.poll() is None


def moving(process, before):
    """Threads that have computed since."""
    now = threads(process)
    return {tid for tid in now if now[tid][1] - before.get(tid, now[tid])[1] > 10}


def test_a_busy_c_call_that_holds_the_lock_computes_alone(tmp_path):
    arguments = ["--how", "busy", "--at-step", 5, "--step-s", 0.01]
    with running(tmp_path, "gil_hold.py", *arguments) as (process, log):
        until(lambda: "step 1 " in log.read_text() and silent(log), "silence")
        before = threads(process)
        until(lambda: moving(process, before), "computing")
        (tid,) = moving(process, before)
        assert tid != process.pid
        assert silent(log)
        assert process.poll() is None


def test_a_sleeping_c_call_that_holds_the_lock_stops_everybody(tmp_path):
    arguments = ["--how", "asleep", "--at-step", 5, "--step-s", 0.01]
    with running(tmp_path, "gil_hold.py", *arguments) as (process, log):
        until(lambda: "step 1 " in log.read_text() and silent(log), "silence")
        before = threads(process)
        time.sleep(0.3)
        assert not moving(process, before)
        assert {state for state, _ in threads(process).values()} == {"S"}
        assert process.poll() is None


def test_two_drafters_end_in_a_lock_cycle(tmp_path):
    arguments = ["--at-step", 6, "--step-s", 0.01]
    with running(tmp_path, "lock_cycle.py", *arguments) as (process, log):
        until(lambda: {"4", "5"} <= set(re.findall(r"step (\d+) ", log.read_text())), "step 5")
        until(lambda: silent(log), "silence")
        until(lambda: all(state == "S" for state, _ in threads(process).values()), "waiting")
        assert process.poll() is None
        assert len(threads(process)) == 4
        assert "step 6 " not in log.read_text()


def test_the_log_of_a_block_buffered_program_is_empty_while_its_steps_go_on(tmp_path):
    mark = tmp_path / "checkpoint.bin"
    arguments = ["--step-s", 0.01, "--buffer-bytes", 65536, "--checkpoint", mark]
    with running(tmp_path, "block_buffered.py", *arguments) as (_, log):
        until(mark.exists, "step 20")
        assert log.stat().st_size == 0


def test_a_program_that_says_done_may_hang(tmp_path):
    arguments = ["--steps", 2, "--step-s", 0.01]
    with running(tmp_path, "exit_hang.py", *arguments) as (process, log):
        until(lambda: "training finished" in log.read_text(), "its last word")
        time.sleep(0.2)
        assert process.poll() is None


@pytest.mark.parametrize(
    ("how", "status"),
    [("exception", 1), ("abort", -signal.SIGABRT), ("kill", -signal.SIGKILL)],
)
def test_a_crash_ends_with_its_status(tmp_path, how, status):
    arguments = ["--at-step", 3, "--step-s", 0.01, "--how", how]
    with running(tmp_path, "crash.py", *arguments) as (process, log):
        assert process.wait(DEADLINE_S) == status
        assert ("RuntimeError: The size of tensor a" in log.read_text()) is (how == "exception")


def test_busy_machine_takes_its_children_with_it(tmp_path):
    with running(tmp_path, "busy_machine.py", "--seconds", 30, "--processes", 2) as (process, _):
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        until(lambda: len(children.read_text().split()) == 2, "two children")
        pids = [int(pid) for pid in children.read_text().split()]
        process.terminate()
        assert process.wait(DEADLINE_S) == 0
        for pid in pids:
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)


def test_no_foreign_program_imports_anything_of_ours():
    for path in HERE.glob("*.py"):
        if path != Path(__file__):
            assert "dflash" not in path.read_text()
