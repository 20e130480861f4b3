"""Who waits for whom when only stacks can tell."""

from __future__ import annotations

from dflash_watch.frame import StackFrame, StackSample, ThreadStack
from dflash_watch.readers.stacks import Comparison, ThreadChange
from dflash_watch.render.stacktext import render_diff, render_processes
from dflash_watch.window.waits import read_stack_waits


def compared(*threads: tuple[str, str, str]) -> Comparison:
    """Threads as (name, wait, change), each at a place of its own."""
    changes = [
        ThreadChange(tid=i, name=name, change=change, leaf=f"{name}:1", wait=wait)
        for i, (name, wait, change) in enumerate(threads)
    ]
    return Comparison(span_s=5.0, count=3, threads=tuple(changes))


def test_both_sides_of_a_queue_that_wait_are_a_circle():
    waits = read_stack_waits(
        compared(
            ("drafter-0", "queue-get", "blocked"),
            ("target-0", "queue-put", "blocked"),
            ("target-1", "queue-put", "blocked"),
        )
    )
    assert waits.cycle == ("drafter-0", "target-0", "target-1")
    assert waits.edges["drafter-0"].targets == ("target-0", "target-1")


def test_a_side_that_works_is_what_the_other_waits_for():
    waits = read_stack_waits(
        compared(("drafter-0", "queue-get", "blocked"), ("target-0", "none", "working"))
    )
    assert waits.cycle == ()
    assert waits.awaited == {"target-0": ("drafter-0",)}


def test_a_lock_whose_owner_may_be_a_thread_that_works_is_no_circle():
    waits = read_stack_waits(
        compared(
            ("a", "lock", "blocked"), ("b", "lock", "blocked"), ("c", "none", "moving"),
        )
    )  # fmt: skip
    assert waits.cycle == ()
    assert waits.awaited == {"c": ("a", "b")}


def test_a_thread_that_waits_for_the_outside_closes_no_circle():
    waits = read_stack_waits(
        compared(("drafter-0", "queue-get", "blocked"), ("target-0", "socket", "blocked"))
    )
    assert waits.cycle == ()
    assert waits.awaited == {"target-0": ("drafter-0",)}


def test_one_thread_alone_waits_for_nobody():
    assert read_stack_waits(compared(("MainThread", "lock", "blocked"))).edges == {}


def thread(tid: int, name: str, function: str, file: str) -> ThreadStack:
    frames = (StackFrame(function, file, 7), StackFrame("run", "t.py", 3))
    return ThreadStack(tid=tid, name=name, frames=frames, cpu_ticks=5, state="S")


def test_a_dump_of_two_samples_shows_the_circle():
    threads = (
        thread(1, "drafter-0", "get", "/usr/lib/python3.11/queue.py"),
        thread(2, "target-0", "put", "/usr/lib/python3.11/queue.py"),
    )
    samples = [
        StackSample(t=t, pid=9, label=label, tool="py-spy", threads=threads)
        for t, label in ((1.0, "1"), (3.0, "2"))
    ]
    text = render_diff(samples)
    assert "  drafter-0 -> target-0 (queue-get)" in text
    assert "nobody outside can free: drafter-0, target-0" in text


def test_samples_of_several_processes_are_compared_each_with_its_own():
    one, other = thread(1, "MainThread", "step", "a.py"), thread(2, "MainThread", "get", "b.py")
    samples = [
        StackSample(t=1.0, pid=9, label="A", tool="py-spy", threads=(one,)),
        StackSample(t=1.1, pid=10, label="A/10", tool="py-spy", threads=(other,)),
        StackSample(t=3.0, pid=9, label="B", tool="py-spy", threads=(one,)),
        StackSample(t=3.1, pid=10, label="B/10", tool="py-spy", threads=(other,)),
    ]
    text = render_diff(samples)
    assert text.count("2 samples over 2.0 s") == 2
    assert text.index("process 9") < text.index("process 10")


def test_the_process_that_stands_elsewhere_comes_first():
    inside = ("all_reduce", "/s/torch/distributed/distributed_c10d.py")
    places = {10: inside, 11: inside, 12: ("get", "/usr/lib/python3.11/queue.py"), 13: inside}
    samples = [
        StackSample(t=1.0, pid=pid, label="1", tool="py-spy",
                    threads=(thread(pid, "MainThread", *place),))
        for pid, place in places.items()
    ]  # fmt: skip
    out = render_processes(samples, {12: "rank 2"})
    assert out[1].startswith("  rank 2: get queue.py:7")
    assert out[2].startswith("  process 10, process 11, process 13: all_reduce")
    assert render_processes(samples[:1]) == []
    assert render_processes(samples[:2])[0].startswith("all 2 main threads stand at all_reduce")
