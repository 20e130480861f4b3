"""A stack sample must not hold the run still: with real samplers on real processes."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from dflash_watch.agent import aftermath, dumps, pyspy
from dflash_watch.agent.means import Means
from dflash_watch.agent.stacks import take_stacks
from watch.agent.driving import state_of, wait_for
from watch.agent.test_memory import held, mount  # noqa: F401 - fixtures
from watch.agent.test_states import HOLD, thread_state

HERE = str(Path(sys.executable).parent)
FOLDERS = [str(Path(__file__).parents[3] / name) for name in ("watchdog", "dflash")]
PY_SPY = str(Path(HERE) / "py-spy")
SAMPLE = (
    "import sys; sys.path[:0] = sys.argv[2:]\n"
    "from dflash_watch.agent.means import Means\n"
    "from dflash_watch.agent.stacks import take_stacks\n"
    "print(take_stacks('/proc', int(sys.argv[1]), 'A', Means())['tool'])\n"
)
BLOCKING = (
    "import sys; sys.path[:0] = sys.argv[2:]\n"
    "from dflash_watch.agent import pyspy\n"
    f"print('begun', flush=True); pyspy.dump({PY_SPY!r}, int(sys.argv[1]), native=True)\n"
)
# One thread in D, one that counts: it stands still when the process is stopped.
COUNTS = """
import ctypes, mmap, sys, threading, time
library = ctypes.CDLL(sys.argv[1])
file = open(sys.argv[2], "r+b")
page = mmap.mmap(file.fileno(), 8)
def count():
    number = 0
    while True:
        number += 1
        page[:8] = number.to_bytes(8, "little")
        time.sleep(0.002)
threading.Thread(target=library.hold, args=(60,), daemon=True).start()
threading.Thread(target=count, daemon=True).start()
print("up", flush=True)
time.sleep(1000)
"""
LOCKED = """
import threading
lock = threading.Lock()
lock.acquire()
print("up", flush=True)
lock.acquire()
"""
DEEP = """
import threading, time
threading.stack_size(256 * 1024)
def deeper(n):
    if n: deeper(n - 1)
    else: time.sleep(1000)
for number in range(300): threading.Thread(target=deeper, args=(120,), daemon=True).start()
print("up", flush=True)
time.sleep(1000)
"""


def states(pid: int) -> set[str]:
    return {thread_state(task) for task in Path(f"/proc/{pid}/task").iterdir()}


class Seen:
    """What a watcher saw of a process: how often it looked, and marks of being held."""

    def __init__(self) -> None:
        self.looks, self.held = 0, set()


@contextlib.contextmanager
def watching(pid: int) -> Iterator[Seen]:
    """Look as often as it goes whether somebody traces or has stopped a process."""
    seen, over = Seen(), threading.Event()

    def look() -> None:
        with Path(f"/proc/{pid}/status").open("rb", buffering=0) as status:
            while not over.is_set():
                status.seek(0)
                text = status.read(1024)
                seen.looks += 1
                head = text.partition(b"\nTgid")[0]
                if b"\nTracerPid:\t0\n" not in text or head.endswith((b"stopped)", b"stop)")):
                    seen.held.add(head)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        wait_for(lambda: seen.looks > 10)
        yield seen
    finally:
        over.set()
        thread.join()


@pytest.fixture
def counts(program, tmp_path) -> Iterator[tuple[subprocess.Popen, Callable[[], int]]]:
    """A process with a thread in D and one that counts, and how far it is."""
    (tmp_path / "hold.c").write_text(HOLD)
    library, page = tmp_path / "hold.so", tmp_path / "page"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, tmp_path / "hold.c"], check=True)
    page.write_bytes(bytes(8))
    run = program(COUNTS, str(library), str(page), stdout=subprocess.PIPE)
    run.stdout.readline()
    wait_for(lambda: "D" in states(run.pid))

    def number() -> int:
        return int.from_bytes(page.read_bytes(), "little")

    yield run, number
    for task in Path(f"/proc/{run.pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            os.kill(int(child), signal.SIGKILL)


def test_a_thread_in_d_neither_delays_the_sample_nor_lets_it_stop_the_others(counts):
    """Finding 1: py-spy as it is by itself waits for that thread with all others stopped."""
    run, number = counts
    with watching(run.pid) as seen:
        before = number()
        sample = take_stacks("/proc", run.pid, "A", Means())
        wait_for(lambda: number() > before)
    assert sample["tool"] == "py-spy"
    assert "1 thread in state D" in sample["note"]
    assert seen.held == set()


def test_a_sampler_that_does_block_is_ended_and_everything_goes_on(counts):
    """py-spy's blocking mode really waits for the thread in D: the kill timer is what helps."""
    run, number = counts
    with watching(run.pid) as seen:
        dump = pyspy.dump(PY_SPY, run.pid, native=True)
    assert dump.kind == dumps.SLOW
    assert seen.held != set()  # it was held: otherwise this test proves nothing
    assert aftermath.set_free("/proc", run.pid, "S") == ()
    after = number()
    wait_for(lambda: number() > after)
    assert aftermath.tracer_of("/proc", run.pid) == 0


def test_a_sampler_never_outlives_the_one_that_started_it(counts):
    run, number = counts
    owner = subprocess.Popen(
        [sys.executable, "-c", BLOCKING, str(run.pid), *FOLDERS], stdout=subprocess.PIPE
    )
    with owner:
        owner.stdout.readline()
        wait_for(lambda: aftermath.tracer_of("/proc", run.pid))
        owner.kill()
    wait_for(lambda: aftermath.tracer_of("/proc", run.pid) == 0)
    after = number()
    wait_for(lambda: number() > after)


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_the_default_ladder_makes_no_call_that_could_stop_anything(program, tmp_path):
    run = program("import time; print('up', flush=True); time.sleep(1000)", stdout=subprocess.PIPE)
    run.stdout.readline()
    log = tmp_path / "calls"
    traced = ["strace", "-f", "-qq", "-o", str(log), "-e", "trace=ptrace,kill,tkill,tgkill"]
    done = subprocess.run(
        [*traced, sys.executable, "-c", SAMPLE, str(run.pid), *FOLDERS],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.strip() == "py-spy", done.stderr
    calls = [line for line in log.read_text().splitlines() if "(" in line and "---" not in line]
    assert [line for line in calls if "ptrace(" in line or f"({run.pid}," in line] == []


def test_a_process_that_a_sample_left_stopped_is_continued_and_that_is_said(program):
    run = program()
    run.send_signal(signal.SIGSTOP)
    wait_for(lambda: state_of(run.pid) == "T")
    assert aftermath.set_free("/proc", run.pid, "T") == ()
    assert state_of(run.pid) == "T"
    assert aftermath.set_free("/proc", run.pid, "S") == (
        "it was left stopped by the sample: continued with SIGCONT",
    )
    assert state_of(run.pid) in "SR"


def test_a_process_that_is_stopped_after_a_sample_that_stops_nothing_is_told(program, tmp_path):
    """It is not continued: a person may have stopped it meanwhile."""
    run = program("import time; print('up', flush=True); time.sleep(1000)", stdout=subprocess.PIPE)
    run.stdout.readline()
    real = shutil.which("py-spy", path=str(Path(sys.executable).parent))
    tool = tmp_path / "py-spy"
    tool.write_text(f'#!/bin/sh\n{real} "$@"\nkill -STOP {run.pid}\n')
    tool.chmod(0o755)
    sample = take_stacks("/proc", run.pid, "A", Means(directories=[str(tmp_path)]))
    assert "is stopped (state T) since the sample: continue it" in sample["note"]
    assert state_of(run.pid) == "T"


def test_a_main_thread_that_waits_for_a_lock_is_sampled_without_running_anything_in_it(program):
    """Finding 11: `sys.remote_exec` waits for the main thread to come back to Python."""
    run = program(LOCKED, stdout=subprocess.PIPE)
    run.stdout.readline()
    wait_for(lambda: state_of(run.pid) == "S")
    switches = Path(f"/proc/{run.pid}/status")
    before = [line for line in switches.read_text().splitlines() if "ctxt" in line]
    (thread,) = take_stacks("/proc", run.pid, "A", Means())["threads"]
    assert (thread["frames"][0][0], thread["call"]) == ("<module>", "futex")
    assert [line for line in switches.read_text().splitlines() if "ctxt" in line] == before


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root for a PID namespace")
def test_threads_of_another_pid_namespace_keep_their_states_and_get_our_numbers(tmp_path):
    """Finding 2: from outside py-spy calls every thread active and counts as inside."""
    text = (
        "import threading, time\n"
        "threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\n"
        "print('up', flush=True); time.sleep(1000)"
    )
    script = tmp_path / "inner.py"
    script.write_text(text)
    command = ["unshare", "--pid", "--fork", "--kill-child", sys.executable, str(script)]
    outer = subprocess.Popen(command, stdout=subprocess.PIPE)
    with outer:
        outer.stdout.readline()
        children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children")
        pid = int(children.read_text())
        tids = {int(task.name) for task in Path(f"/proc/{pid}/task").iterdir()}
        wait_for(lambda: states(pid) == {"S"})
        sample = take_stacks("/proc", pid, "A", Means())
        outer.kill()
    assert {thread["tid"] for thread in sample["threads"]} == tids
    assert {thread["state"] for thread in sample["threads"]} == {"S"}


def test_a_thousand_deep_stacks_stay_within_their_bound_and_say_what_was_cut(program):
    run = program(DEEP, stdout=subprocess.PIPE)
    run.stdout.readline()
    wait_for(lambda: len([*Path(f"/proc/{run.pid}/task").iterdir()]) == 301)
    sample = take_stacks("/proc", run.pid, "A", Means())
    frames = [len(thread["frames"]) for thread in sample["threads"]]
    assert len(frames) == 301
    assert sum(frames) < 20_000
    assert "middle frames of" in sample["note"]
    cut = next(thread for thread in sample["threads"] if 0 < len(thread["frames"]) < 100)
    assert cut["frames"][0][0] == "deeper"
    assert cut["frames"][-1][0].endswith("_bootstrap")


def test_a_process_that_ends_during_the_sample_is_said_to_have_ended(program, tmp_path):
    run = program()
    tool = tmp_path / "py-spy"
    tool.write_text(f"#!/bin/sh\nkill -KILL {run.pid}; sleep 0.2; echo 'os error 3' >&2; exit 1\n")
    tool.chmod(0o755)
    reaper = threading.Thread(target=run.wait)
    reaper.start()
    sample = take_stacks("/proc", run.pid, "A", Means(directories=[str(tmp_path)]))
    reaper.join()
    assert "the process is gone" in sample["error"]
    assert "ended during the sample" in sample["note"]


def test_no_sampler_is_sent_into_a_process_whose_memory_is_held(held):  # noqa: F811 - a fixture
    """It would hang in there beside the others, and no signal ends it."""
    sample = take_stacks("/proc", held.pid, "A", Means(native=True))
    assert sample["tool"] == "kernel"
    assert "a sampler would hang" in sample["error"]
    assert [rung["outcome"] for rung in sample["ladder"]][-1] == "taken"
    assert any(thread["state"] == "D" for thread in sample["threads"])
