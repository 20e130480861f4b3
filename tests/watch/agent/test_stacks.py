"""Stacks by py-spy, taken from real processes, and what stands in where there are none."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import pythons
from dflash_watch.agent import pyspy
from dflash_watch.agent.means import Means
from dflash_watch.agent.stacks import take_stacks
from watch.agent.driving import AgentProcess, state_of, typed, wait_for
from watch.agent.test_states import d_state  # noqa: F401 - a fixture

Start = Callable[..., AgentProcess]
PY_SPY = shutil.which("py-spy", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
needs_py_spy = pytest.mark.skipif(PY_SPY is None, reason="py-spy is not installed")
TWO_THREADS = """
import threading, time
lock = threading.Lock()
lock.acquire()
def take_the_lock():
    lock.acquire()
threading.Thread(target=take_the_lock, name="drafter-1", daemon=True).start()
print("up", flush=True)
time.sleep(1000)
"""


def take(pid: int, **means) -> dict:
    """A sample of a process; the tools of this environment unless `directories` says otherwise."""
    return take_stacks("/proc", pid, "A", Means(**means))


def holding(tool: Path) -> dict:
    """Means that know this one py-spy only."""
    return {"directories": [str(tool.parent)]}


@pytest.fixture
def two_threads(program):
    run = program(TWO_THREADS, stdout=subprocess.PIPE)
    run.stdout.readline()
    return run


@needs_py_spy
def test_each_thread_has_frames_and_the_kernels_word(two_threads):
    sample = take(two_threads.pid, pushed=PY_SPY)
    threads = {thread["name"]: thread for thread in sample["threads"]}
    waiting = threads["drafter-1"]
    assert sample["tool"] == "py-spy"
    assert "error" not in sample
    assert waiting["frames"][0][0] == "take_the_lock"
    assert len(waiting["frames"]) > 2
    assert waiting["frames"][0][2] == 6
    assert waiting["state"] == "S"
    assert "futex" in waiting["wchan"]
    assert typed(sample).threads[0].frames[0].line > 0


@needs_py_spy
def test_a_stopped_target_is_read_and_left_as_it_was(two_threads):
    two_threads.send_signal(signal.SIGSTOP)
    wait_for(lambda: state_of(two_threads.pid) == "T")
    sample = take(two_threads.pid, pushed=PY_SPY)
    assert sample["tool"] == "py-spy"
    assert "stopped (state T) before" in sample["note"]
    assert state_of(two_threads.pid) == "T"


@needs_py_spy
def test_a_thread_in_d_is_noted_and_the_target_goes_on(d_state):  # noqa: F811 - a fixture
    sample = take(d_state.pid)
    assert sample["tool"] == "py-spy"
    assert "1 thread in state D" in sample["note"]
    assert state_of(d_state.pid) in "SD"


def test_without_py_spy_the_kernels_view_stands_in(two_threads):
    tids = [int(task.name) for task in Path(f"/proc/{two_threads.pid}/task").iterdir()]
    wait_for(lambda: {state_of(tid) for tid in tids} == {"S"})
    sample = take(two_threads.pid, directories=[])
    assert sample["tool"] == "kernel"
    assert "no py-spy here" in sample["error"]
    assert len(sample["threads"]) == 2
    assert all(thread["state"] == "S" for thread in sample["threads"])
    typed(sample)


@needs_py_spy
def test_a_process_that_is_no_python_is_said_to_be_none():
    sleep = subprocess.Popen(["sleep", "60"])
    try:
        sample = take(sleep.pid, pushed=PY_SPY)
        assert sample["error"].startswith("not a Python process")
        assert sample["threads"][0]["name"] == "sleep"
    finally:
        sleep.kill()
        sleep.wait()


def test_a_process_that_is_not_there_is_said_to_be_gone():
    sample = take(4_194_000)
    assert sample["error"] == "no process 4194000 here"
    typed(sample)


def test_a_tool_that_hangs_is_ended(two_threads, tmp_path, monkeypatch):
    tool = tmp_path / "py-spy"
    tool.write_text("#!/bin/sh\nexec sleep 60\n")
    tool.chmod(0o755)
    monkeypatch.setattr(pyspy, "TOOL_S", 0.2)
    sample = take(two_threads.pid, **holding(tool))
    assert "no answer" in sample["error"]
    assert sample["tool"] == "kernel"


def test_a_torn_reading_is_tried_again(two_threads, tmp_path):
    tool = tmp_path / "py-spy"
    whole = '[{"os_thread_id": null, "frames": [{"name": "f", "filename": "g", "line": 3}]}]'
    tool.write_text(
        f"#!/bin/sh\ncd {tmp_path}\n"
        f"if [ -e second ]; then echo '{whole}'; else touch second; echo '[]'; fi\n"
    )
    tool.chmod(0o755)
    sample = take(two_threads.pid, **holding(tool))
    assert sample["threads"][0]["frames"] == [["f", "g", 3]]


@needs_py_spy
def test_the_agent_takes_stacks_while_frames_go_on(agent: Start, two_threads):
    run = agent({"pid": two_threads.pid}, every_s=0.1)
    run.frame()
    number = run.ask("stacks", pid=two_threads.pid, label="B")
    sample = run.until(lambda record: record["type"] == "stacks")
    reply = run.until(lambda record: record["type"] == "reply")
    assert (sample["label"], sample["tool"]) == ("B", "py-spy")
    assert reply == {"type": "reply", "id": number, "ok": True}
    assert run.frame()["run"]["state"] == "found"


@needs_py_spy
def test_a_tool_is_not_asked_for_where_the_runs_own_environment_has_one(two_threads):
    assert take(two_threads.pid, can_push=True)["tool"] == "py-spy"


def test_a_tool_that_does_not_know_this_python_is_no_reason_not_to_ask(two_threads, tmp_path):
    tool = tmp_path / "py-spy"
    tool.write_text("#!/bin/sh\necho 'Error: Unsupported version of Python: 3.19' >&2; exit 1\n")
    tool.chmod(0o755)
    assert take(two_threads.pid, can_push=True, **holding(tool)) == {"needs_tool": True}


@needs_py_spy
def test_a_pushed_tool_is_used_where_there_is_none(agent: Start, program, tmp_path):
    bare = bare_python()
    if bare is None:
        pytest.skip("needs a second Python without py-spy beside it")
    target = program(TWO_THREADS, python=bare, stdout=subprocess.PIPE)
    target.stdout.readline()
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    run = agent({"pid": target.pid}, env=env, python=bare)
    assert run.until(lambda record: record["type"] == "hello")["tools"] == {"py-spy": None}
    run.ask("stacks", pid=target.pid, label="before", no_tool="the watcher is a toaster")
    assert (
        "the watcher is a toaster" in run.until(lambda record: record["type"] == "stacks")["error"]
    )
    number = run.ask("stacks", pid=target.pid, label="offered", can_push=True)
    asks = run.until(lambda record: record["type"] == "stacks" or record.get("id") == number)
    assert (asks.get("ok"), asks.get("error")) == (False, "needs py-spy")
    data = Path(PY_SPY).read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    number = run.ask("tool", data, name="py-spy", bytes=len(data), sha256=digest)
    assert run.until(lambda record: record["type"] == "reply" and record["id"] == number)["ok"]
    run.ask("stacks", pid=target.pid, label="after")
    sample = run.until(lambda record: record["type"] == "stacks")
    assert sample["tool"] == "py-spy"
    assert any(thread.get("name") == "drafter-1" for thread in sample["threads"])


def bare_python() -> str | None:
    """An interpreter that py-spy reads and whose folder holds none."""
    for path, version in pythons.interpreters():
        places = f"{Path(path).parent}:{Path(path).resolve().parent}:/usr/bin:/bin"
        if version in ("3.11", "3.12", "3.13") and not shutil.which("py-spy", path=places):
            return path
    return None


def test_a_tool_that_came_damaged_is_refused(agent: Start, trainer):
    run = agent({"pid": trainer.pid})
    run.ask("tool", b"not the tool", name="py-spy", bytes=12, sha256="0" * 64)
    reply = run.until(lambda record: record["type"] == "reply")
    assert not reply["ok"]
    assert "sha256" in reply["error"]


def test_a_second_request_for_the_same_process_is_refused(agent: Start, two_threads):
    run = agent({"pid": two_threads.pid})
    run.frame()
    run.ask("stacks", pid=two_threads.pid, label="A")
    run.ask("stacks", pid=two_threads.pid, label="B")
    refused = run.until(lambda record: record["type"] == "reply")
    assert (refused["id"], refused["ok"]) == (2, False)
    assert run.until(lambda record: record["type"] == "stacks")["label"] == "A"
