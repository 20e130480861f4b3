"""Every tool's text of the same process becomes the same model."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from dflash_watch.frame import StackSample, ThreadStack
from dflash_watch.readers import stacklines as sl
from dflash_watch.readers.stackparse import DUMP_LIMIT, StackScanner, parse_dumps
from dflash_watch.readers.waits import wait_reason

STACKS = Path(__file__).parent / "stacks"
WHO = re.compile(r"consumer|producer|locked|reader|sleeper|waiter|native|worker")


def recorded(name: str) -> str:
    return (STACKS / name).read_text("utf-8")


def only(text: str, **given: int) -> StackSample:
    dumps = parse_dumps(text, **given)
    assert len(dumps.samples) == 1
    return dumps.samples[0]


def python_names(thread: ThreadStack) -> list[str]:
    """Functions of Python files, innermost first, without their classes and modules."""
    frames = [frame for frame in thread.frames if frame.file.endswith(".py")]
    return [re.split(r"\.(?!<)|<locals>\.", frame.name)[-1] for frame in frames]


def stacks_of(sample: StackSample) -> list[list[str]]:
    return sorted(python_names(thread) for thread in sample.threads)


ALL = [
    "py-spy.txt", "py-spy.json", "py-spy-native.txt", "faulthandler.txt", "gdb-py-bt.txt",
    "pystack.txt", "pystack-native.txt",
]  # fmt: skip


@pytest.mark.parametrize("name", ALL)
def test_each_tool_shows_nine_threads_at_the_same_places(name: str) -> None:
    dumps = parse_dumps(recorded(name))
    sample = dumps.samples[0]
    assert len(dumps.samples) == 1
    assert dumps.unread == 0
    assert [one for one in stacks_of(sample) if "worker" not in one] == [
        one for one in stacks_of(only(recorded("py-spy.txt"))) if "worker" not in one
    ]
    assert sum("worker" in one for one in stacks_of(sample)) == 1


@pytest.mark.parametrize("name", [*ALL, "gdb.txt", "py-spy-locals.txt"])
def test_lines_files_and_numbers_are_those_of_the_program(name: str) -> None:
    sample = only(recorded(name))
    assert len(sample.threads) == 9
    if name != "gdb.txt":
        queue = [f for t in sample.threads for f in t.frames if f.file.endswith("queue.py")]
        assert sorted(f.line for f in queue) == [140, 171]
    if not name.startswith(("faulthandler", "py-spy.json")):
        assert {20727, 20735} <= {thread.tid for thread in sample.threads}
        assert sample.pid == 20727


def test_names_and_the_lock_holder_come_from_py_spy() -> None:
    sample = only(recorded("py-spy.txt"))
    names = {thread.name for thread in sample.threads}
    assert {"MainThread", "drafter-0", "reader (0)"} <= names
    assert [thread.name for thread in sample.threads if thread.owns_gil] == ["worker-0"]
    assert sample.command == "/srv/venv/bin/python waits.py"
    reasons = {thread.name: wait_reason(thread) for thread in sample.threads}
    assert (reasons["drafter-0"], reasons["target-0"]) == ("queue-get", "queue-put")


def test_arguments_and_locals_are_no_frames() -> None:
    plain = only(recorded("py-spy.txt"))
    assert {len(t.frames) for t in only(recorded("py-spy-locals.txt")).threads} <= {
        len(t.frames) for t in plain.threads
    }


def test_a_lock_held_by_a_sleeping_c_call_is_seen_with_those_who_want_it() -> None:
    sample = only(recorded("pystack-gil.txt"))
    owner, *others = sample.threads
    assert (owner.owns_gil, owner.waits_gil) == (True, None)
    assert owner.frames[0].name.startswith("clock_nanosleep")
    assert [one.waits_gil for one in others] == [True, True]
    assert [t.waits_gil for t in only(recorded("gdb-py-bt-gil.txt")).threads] == [None, True, True]


def test_a_collection_of_garbage_is_told() -> None:
    assert only(recorded("pystack-gc.txt")).threads[0].in_gc is True
    text = "Current thread 0x1f (most recent call first):\n  Garbage-collecting\n"
    assert only(text + '  File "a.py", line 3 in f\n').threads[0].in_gc is True


def test_bt_and_py_bt_of_one_process_are_joined() -> None:
    sample = only(recorded("gdb.txt") + recorded("gdb-py-bt.txt"))
    assert len(sample.threads) == 9
    sleeper = next(t for t in sample.threads if "sleeper" in python_names(t))
    assert sleeper.frames[0].name == "__GI___clock_nanosleep"
    assert not any(frame.name.startswith("_PyEval") for frame in sleeper.frames)


CPP = """Thread 4 (Thread 0x7f05 (LWP 77) "pt_nccl_watchdg"):
#0  0x00007f05daa91376 in pthread_cond_wait@@GLIBC_2.3.2 () from /lib/libpthread.so.0
#1  std::condition_variable::wait(std::unique_lock<std::mutex>&) () from /lib/libstdc++.so.6
#2  std::function<void (int)>::operator()(int) const (this=0x1, a=2)
    at /usr/include/c++/11/bits/std_function.h:590
#3  c10d::ProcessGroupNCCL::(anonymous namespace)::run (x=...) at ../NCCL.cpp:12
#4  0x0000 in ?? () from /usr/lib64/libcuda.so.1
#5 Frame 0x7f11, for file /a/b.py, line 3, in forward (self=<M(x=1) at remote 0x7f>, y=(1, 2))
#6  0x01 in clone () at ../sysdeps/clone.S:95
"""


def test_cpp_frames_keep_their_names_and_places() -> None:
    thread = only(CPP).threads[0]
    assert thread.name == "pt_nccl_watchdg"
    assert [(f.name, f.file, f.line) for f in thread.frames] == [
        ("pthread_cond_wait", "/lib/libpthread.so.0", 0),
        ("std::condition_variable::wait(std::unique_lock<std::mutex>&)", "/lib/libstdc++.so.6", 0),
        ("std::function<void (int)>::operator()(int) const",
         "/usr/include/c++/11/bits/std_function.h", 590),
        ("c10d::ProcessGroupNCCL::(anonymous namespace)::run", "../NCCL.cpp", 12),
        ("??", "/usr/lib64/libcuda.so.1", 0),
        ("forward", "/a/b.py", 3),
        ("clone", "../sysdeps/clone.S", 95),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("symbol", "plain"),
    [
        ("clock_nanosleep@GLIBC_2.2.5", "clock_nanosleep"),
        ("pthread_cond_wait@@GLIBC_2.3.2", "pthread_cond_wait"),
        ("__new_sem_wait_slow64.constprop.0", "__new_sem_wait_slow64"),
        ("f.isra.0.part.1.cold", "f"),
        ("std::f(char const*)", "std::f(char const*)"),
        ("torch.ops.aten", "torch.ops.aten"),
        ("@f", "@f"),
    ],
)
def test_symbols_lose_what_linker_and_compiler_added(symbol: str, plain: str) -> None:
    assert sl.plain_symbol(symbol) == plain


def test_a_file_with_several_ranks_holds_several_dumps() -> None:
    spy = recorded("py-spy.txt")
    text = f"== rank 0 ==\n{spy}\n== rank 3 ==\n{spy.replace('20727', '31000')}"
    dumps = parse_dumps(text)
    assert [(s.rank, s.pid, len(s.threads)) for s in dumps.samples] == [
        (0, 20727, 9),
        (3, 31000, 9),
    ]


def test_an_announcement_far_above_a_dump_is_not_its_own() -> None:
    spy = recorded("faulthandler.txt")
    assert only("rank 3:\n" + spy).rank == 3
    assert only("Process 3 timed out with traceback:\n" + spy).rank == 3
    assert only("rank 3:\n" + "step 1\n" * 60 + spy).rank is None
    assert only("rank 3: step 100 loss 2.1\n" + spy).rank is None


def test_ranks_that_print_into_one_another_are_kept_apart() -> None:
    lines = recorded("faulthandler.txt").splitlines()
    mixed = [part for line in lines for part in (f"[rank0]: {line}", f"[rank1]: {line}")]
    dumps = parse_dumps("\n".join(mixed))
    assert [(s.rank, len(s.threads)) for s in dumps.samples] == [(0, 9), (1, 9)]


def test_the_same_process_dumped_again_is_a_second_dump() -> None:
    twice = recorded("faulthandler.txt") + "step 7\n" + recorded("faulthandler.txt")
    assert [len(s.threads) for s in parse_dumps(twice).samples] == [9, 9]
    later = "Timeout (0:00:40)!\n" + recorded("faulthandler.txt")
    assert [len(s.threads) for s in parse_dumps(later * 3).samples] == [9, 9, 9]


def test_processes_that_share_one_log_end_with_their_main_threads() -> None:
    one = recorded("faulthandler.txt")
    other = one.replace("0x00007f", "0x00007e")
    assert [len(s.threads) for s in parse_dumps(one + other).samples] == [9, 9]


def test_a_traceback_is_no_stack_and_ends_one() -> None:
    text = 'Traceback (most recent call last):\n  File "a.py", line 3, in f\nValueError: 1\n'
    assert parse_dumps(text).samples == ()
    dump = 'Thread 0x0000ab (most recent call first):\n  File "q.py", line 1 in get\n'
    assert [len(t.frames) for t in only(dump + text).threads] == [1]


def test_frames_of_the_kernel_are_read() -> None:
    frames = "[<0>] rpc_wait_bit_killable+0x1e/0xa0\n[<0>] nfs_file_read+0x6/0x9\n"
    text = f"==> /proc/12/task/13/stack <==\n{frames}"
    thread = only(text).threads[0]
    assert (thread.tid, [f.name for f in thread.frames]) == (
        13, ["rpc_wait_bit_killable", "nfs_file_read"],
    )  # fmt: skip


def test_colours_prefixes_and_line_ends_of_windows_do_not_matter() -> None:
    text = recorded("pystack.txt").replace("(Python)", "\x1b[32m(Python)\x1b[0m")
    assert len(only(text.replace("\n", "\r\n")).threads) == 9


def test_what_was_not_read_is_said() -> None:
    dump = "Thread 0x0000ab (most recent call first):\n  File q.py at line 1\n"
    dumps = parse_dumps(dump)
    assert (dumps.unread, dumps.unread_lines) == (1, ("  File q.py at line 1",))


def test_dumps_beyond_the_limit_are_counted_and_both_ends_kept() -> None:
    scanner = StackScanner()
    for i in range(DUMP_LIMIT + 10):
        scanner.feed(f"Process {i + 1}: python")
        scanner.feed('Thread 5 (idle): "MainThread"')
        scanner.feed("    f (a.py:1)")
    dumps = scanner.finish()
    assert (len(dumps.samples), dumps.left_out) == (DUMP_LIMIT, 10)
    assert (dumps.samples[0].pid, dumps.samples[-1].pid) == (1, DUMP_LIMIT + 10)


@pytest.mark.parametrize(
    ("line", "frame"),
    [
        ("    f (a.py:3)", ("f", "a.py", 3)),
        ("    at::mm(at::Tensor const&) (libt.so)", ("at::mm(at::Tensor const&)", "libt.so", 0)),
        ("    f (/a dir (old)/b.py:7)", ("f", "/a dir (old)/b.py", 7)),
        ("    synchronize", ("synchronize", "", 0)),
        ("    (libc.so.6)", ("(libc.so.6)", "", 0)),
    ],
)  # fmt: skip
def test_frames_of_py_spy(line: str, frame: tuple[str, str, int]) -> None:
    made = sl.spy_frame(line)
    assert (made.name, made.file, made.line) == frame
