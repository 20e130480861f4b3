"""Stacks of real processes, taken by the real tools, and of the shapes that hangs have."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from dflash_watch.frame import StackFrame, StackSample, ThreadStack
from dflash_watch.readers.stackparse import parse_stacks
from dflash_watch.readers.stacks import compare, group_threads, leaf_of
from dflash_watch.readers.waits import is_helper, wait_reason

PY_SPY = shutil.which("py-spy", path=str(Path(sys.executable).parent)) or shutil.which("py-spy")
HANGING = """
import faulthandler, queue, signal, sys, threading, time
faulthandler.register(signal.SIGUSR1, all_threads=True)
locks = threading.Lock(), threading.Lock()
met = threading.Barrier(2)
def cross(first, second):
    with first:
        met.wait()
        with second:
            raise SystemExit
def take():
    queue.Queue().get()
def spin():
    while True:
        pass
jobs = [(cross, locks), (cross, locks[::-1]), (take, ()), (spin, ())]
threads = [
    threading.Thread(target=work, args=args, name=f"{work.__name__}-{i}", daemon=True)
    for i, (work, args) in enumerate(jobs)
]
for thread in threads:
    thread.start()
def all_stand():
    frames = sys._current_frames()
    leaves = [frames[one.ident] for one in threads]
    crossed = all(one.f_lineno - one.f_code.co_firstlineno == 3 for one in leaves[:2])
    return crossed and [one.f_code.co_name for one in leaves] == ["cross", "cross", "wait", "spin"]
while not all_stand():
    time.sleep(0.01)
print("up", flush=True)
time.sleep(1000)
"""


def thread(tid: int, *frames: tuple[str, str, int], name: str = "w", **more: object) -> ThreadStack:
    made = tuple(StackFrame(*frame) for frame in frames)
    return ThreadStack(tid=tid, name=name, frames=made, **more)  # type: ignore[arg-type]


def sample(t: float, *threads: ThreadStack) -> StackSample:
    return StackSample(t=t, pid=7, label="A", tool="py-spy", threads=threads)


@pytest.fixture
def hanging() -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HANGING], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    yield process
    process.kill()
    process.communicate()


@pytest.mark.skipif(PY_SPY is None, reason="py-spy is not installed")
def test_real_threads_are_read_from_the_text_of_py_spy(hanging: subprocess.Popen[str]) -> None:
    text = subprocess.run(
        [str(PY_SPY), "dump", "--nonblocking", "--pid", str(hanging.pid)],
        capture_output=True,
        text=True,
        timeout=90,
        check=True,
    ).stdout
    seen = parse_stacks(text)
    assert seen is not None
    assert (seen.tool, seen.pid) == ("py-spy", hanging.pid)
    waits = {one.name: wait_reason(one) for one in seen.threads}
    assert waits["take-2"] == "queue-get"
    assert {one.name for one in seen.threads} >= {"MainThread", "cross-0", "cross-1", "spin-3"}
    crossed = [g for g in group_threads(seen) if {"cross-0"} <= {t.name for t in g.threads}]
    assert [t.name for t in crossed[0].threads] == ["cross-0", "cross-1"]


def test_real_threads_are_read_from_a_dump_of_faulthandler(hanging: subprocess.Popen[str]) -> None:
    hanging.send_signal(signal.SIGUSR1)
    assert hanging.stderr is not None
    text = ""
    while not text.endswith("in <module>\n"):  # the main thread comes last
        text += (line := hanging.stderr.readline())
        assert line, text
    seen = parse_stacks(text, pid=hanging.pid)
    assert seen is not None
    assert seen.tool == "faulthandler"
    waits = sorted(wait_reason(one) for one in seen.threads)
    assert len(waits) == 5
    assert "queue-get" in waits
    assert any(leaf_of(one).startswith("spin ") for one in seen.threads)


NOISY = """noise
Thread 42 (active+gil): "MainThread"
    f (a.py:3)
    <module> (a.py:9)

Thread 928 (idle)
Thread 929 (idle)
"""


@pytest.mark.parametrize(
    ("text", "count", "leaf"),
    [
        ('Thread 1 (idle): "MainThread"\n    synchronize\n    do_bench (triton/testing.py)\n', 1,
         "synchronize "),
        ("Thread 0x7F4AA36D9700 (active)\n    main_loop (ray/worker.py:1005)\n", 1,
         "main_loop ray/worker.py:1005"),
        (NOISY, 3, "f a.py:3"),
    ],
)  # fmt: skip
def test_shortened_texts_of_py_spy_are_read(text: str, count: int, leaf: str) -> None:
    seen = parse_stacks(text)
    assert seen is not None
    assert (len(seen.threads), leaf_of(seen.threads[0])) == (count, leaf)


def test_text_without_stacks_is_none() -> None:
    assert (
        parse_stacks("Error: Permission Denied: Try running again\nThread safety matters\n") is None
    )


@pytest.mark.parametrize(
    ("frames", "reason"),
    [
        ([("wait", "threading.py", 320), ("get", "queue.py", 171)], "queue-get"),
        ([("wait", "threading.py", 320), ("put", "queue.py", 140)], "queue-put"),
        ([("put", "/x/dflash_train/queue.py", 40), ("run", "/x/target.py", 9)], "queue-put"),
        ([("acquire", "/x/dflash_train/locks.py", 40), ("step", "/x/drafter.py", 9)], "lock"),
        ([("NamedLock.held", "/x/dflash_train/locks.py", 40)], "lock"),
        (
            [
                ("Condition.wait", "threading.py", 1),
                ("Meet._wait", "/x/dflash_train/averaging.py", 86),
            ],
            "peer",
        ),
        (
            [
                ("Condition.wait", "threading.py", 1),
                ("HSQueue._wait", "/x/dflash_train/queue.py", 143),
                ("HSQueue.put", "/x/dflash_train/queue.py", 82),
            ],
            "queue-put",
        ),
        ([("barrier", "torch/distributed/distributed_c10d.py", 2477)], "collective"),
        ([("_invoke_run", "torch/distributed/elastic/agent/server/api.py", 900)], "none"),
        ([("wait", "torch/utils/file_baton.py", 42)], "file-lock"),
        ([("_wait_for_tstate_lock", "threading.py", 1049), ("join", "threading.py", 1)], "join"),
        ([("poll", "multiprocessing/popen_fork.py", 28)], "subprocess"),
        ([("synchronize", "torch/cuda/__init__.py", 900), ("step", "t.py", 1)], "device"),
        ([("synchronize", "", 0), ("do_bench", "triton/testing.py", 1)], "tune"),
        ([("acquire", "threading.py", 1), ("run", "triton/runtime/autotuner.py", 200)], "lock"),
        ([("compile", "torch/_inductor/graph.py", 5), ("f", "t.py", 1)], "compile"),
        ([("f", "model.py", 5), ("_fn", "torch/_dynamo/eval_frame.py", 600)], "none"),
        ([("select", "selectors.py", 415)], "poll"),
        ([("recv_into", "socket.py", 700), ("step", "t.py", 1)], "socket"),
        (
            [("wait", "threading.py", 320), ("wait", "threading.py", 600), ("f", "t.py", 1)],
            "condition",
        ),
        ([("f", "train.py", 5)], "none"),
    ],
)
def test_a_leaf_says_what_the_thread_waits_for(
    frames: list[tuple[str, str, int]], reason: str
) -> None:
    assert wait_reason(thread(1, *frames)) == reason


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"state": "D", "wchan": "rpc_wait_bit_killable"}, "storage"),
        ({"state": "D", "wchan": "io_schedule"}, "disk"),
        ({"state": "T"}, "stopped"),
        ({"state": "t"}, "traced"),
        ({"state": "S", "syscall": "202"}, "lock"),
        ({"state": "S", "syscall": "230"}, "sleep"),
        ({"state": "R", "syscall": "running"}, "none"),
        ({}, "unknown"),
    ],
)
def test_without_frames_the_kernel_says_why_a_thread_stands(
    more: dict[str, object], reason: str
) -> None:
    assert wait_reason(thread(1, **more)) == reason


def test_a_sleeping_python_thread_is_told_apart_by_its_system_call() -> None:
    assert wait_reason(thread(1, ("next_batch", "t.py", 13), state="S", syscall="230")) == "sleep"


def test_the_odd_thread_stands_first_and_helpers_last() -> None:
    work = ("get", "queue.py", 171), ("run", "w.py", 9)
    odd = ("all_gather", "torch/distributed/distributed_c10d.py", 5)
    monitor = ("wait", "threading.py", 324), ("run", "tqdm/_monitor.py", 60)
    groups = group_threads(
        sample(
            0.0,
            thread(1, *monitor, name="Thread-1"),
            *(thread(n, *work, name=f"drafter-{n}") for n in range(2, 5)),
            thread(9, odd, name="target-0"),
        )
    )
    assert [[t.name for t in g.threads] for g in groups] == [
        ["target-0"],
        ["drafter-2", "drafter-3", "drafter-4"],
        ["Thread-1"],
    ]
    assert [g.helper for g in groups] == [False, False, True]


@pytest.mark.parametrize(
    "helper",
    [
        thread(1, ("_worker", "concurrent/futures/thread.py", 81), name="x"),
        thread(1, ("read", "torch/_inductor/compile_worker/subproc_pool.py", 81), name="x"),
        thread(1, ("_run", "dflash_events/ticker.py", 30), name="dflash-ticker"),
        thread(1, name="python", state="S"),
    ],
)
def test_a_thread_that_idles_by_design_is_a_helper(helper: ThreadStack) -> None:
    assert is_helper(helper)


def test_a_thread_whose_work_calls_a_logger_is_no_helper() -> None:
    deep = [("log", "wandb/sdk/run.py", 9), *[("step", "train.py", n) for n in range(5)]]
    assert not is_helper(thread(1, *deep, name="drafter-0"))
    main = ("_wait_for_tstate_lock", "threading.py", 1049), ("run", "wandb/internal.py", 3)
    assert not is_helper(thread(1, *main, name="MainThread"))


def test_a_nameless_thread_that_holds_the_interpreter_lock_is_no_helper() -> None:
    assert not is_helper(thread(1, name="python", state="S", owns_gil=True))


def at(t: float, line: int, ticks: int | None) -> StackSample:
    return sample(t, thread(5, ("work", "w.py", line), cpu_ticks=ticks, state="S"))


@pytest.mark.parametrize(
    ("lines", "ticks", "change"),
    [
        ((7, 7, 7), (100, 100, 101), "blocked"),
        ((7, 7, 7), (100, 300, 500), "spinning"),
        ((7, 7, 7), (100, 120, 140), "working"),
        ((7, 8, 7), (100, 300, 500), "moving"),
        ((7, 7, 7), (None, None, None), "still"),
    ],
)
def test_motion_between_three_samples(
    lines: tuple[int, ...], ticks: tuple[int | None, ...], change: str
) -> None:
    samples = [
        at(2.0 * i, line, tick) for i, (line, tick) in enumerate(zip(lines, ticks, strict=True))
    ]
    assert [one.change for one in compare(samples).threads] == [change]


def test_a_loop_around_one_blocking_call_counts_as_one_place() -> None:
    def polling(t: float, line: int) -> StackSample:
        frames = ("wait", "threading.py", line), ("get", "queue.py", 180)
        return sample(t, thread(5, *frames, cpu_ticks=10))

    (one,) = compare([polling(0.0, 320), polling(2.0, 324)]).threads
    assert (one.change, one.wait) == ("blocked", "queue-get")


def test_threads_that_went_and_came_are_told() -> None:
    frame = ("f", "a.py", 1)
    seen = compare([sample(0.0, thread(1, frame)), sample(2.0, thread(2, frame))])
    assert {one.tid: one.change for one in seen.threads} == {1: "gone", 2: "new"}


def test_one_sample_says_nothing_about_motion() -> None:
    assert [one.change for one in compare([at(0.0, 7, 5)]).threads] == ["unknown"]
    assert compare([]).threads == ()


def test_the_same_owner_of_the_interpreter_lock_at_one_place_is_named() -> None:
    def held(t: float, owner: int, line: int) -> StackSample:
        return sample(
            t,
            *(
                thread(n, ("call", "w.py", line), name=f"t-{n}", owns_gil=n == owner)
                for n in (1, 2)
            ),
        )

    fixed = compare([held(0.0, 2, 5), held(2.0, 2, 5), held(4.0, 2, 5)]).gil_owner
    assert fixed is not None
    assert fixed.name == "t-2"
    assert compare([held(0.0, 2, 5), held(2.0, 1, 5)]).gil_owner is None
    assert compare([held(0.0, 2, 5), held(2.0, 2, 6)]).gil_owner is None
    assert compare([held(0.0, 2, 5)]).gil_owner is None
