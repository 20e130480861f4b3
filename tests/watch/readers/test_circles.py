"""A deadlock is proved from stacks alone, and never claimed while anybody could still wake it."""

from __future__ import annotations

import pytest
from dflash_watch.frame import StackFrame, StackSample, ThreadStack
from dflash_watch.readers.circles import closed_circle
from dflash_watch.readers.stacks import compare

PLACES = {
    "lock": (("update", "w.py", 22), "202"),
    "put": (("put", "queue.py", 140), "202"),
    "get": (("get", "queue.py", 171), "202"),
    "join": (("join", "threading.py", 1119), "202"),
    "sleep": (("poll_disk", "w.py", 3), "230"),
    "socket": (("recv", "socket.py", 700), "45"),
    "run": (("compute", "w.py", 9), "running"),
}


def sample(t: float, *places: str, ticks: int = 5) -> StackSample:
    threads = []
    for number, place in enumerate(places):
        frame, call = PLACES[place]
        threads.append(
            ThreadStack(
                tid=number,
                name=f"{place}-{number}",
                frames=(StackFrame(*frame),),
                state="S",
                syscall=call,
                cpu_ticks=ticks,
            )
        )
    return StackSample(t=t, pid=7, label="A", tool="py-spy", threads=tuple(threads))


def circle(*places: str) -> tuple[str, list[str]] | None:
    found = closed_circle(compare([sample(0.0, *places), sample(2.0, *places)]))
    return None if found is None else (found.kind, [str(one.name) for one in found.threads])


def test_two_threads_in_locks_and_nobody_else_awake_are_a_circle_of_locks() -> None:
    assert circle("join", "lock", "lock", "put") == ("lock", ["lock-1", "lock-2"])


def test_threads_at_queues_and_nobody_left_to_serve_them_are_a_circle_of_queues() -> None:
    assert circle("join", "get", "get") == ("queue", ["get-1", "get-2"])


@pytest.mark.parametrize("awake", ["sleep", "socket", "run"])
def test_a_thread_that_can_still_wake_the_others_is_no_circle(awake: str) -> None:
    assert circle("lock", "lock", awake) is None


def test_one_waiting_main_thread_alone_is_no_circle() -> None:
    assert circle("join") is None
    assert circle() is None


def test_one_sample_or_a_thread_that_moved_proves_nothing() -> None:
    assert closed_circle(compare([sample(0.0, "lock", "lock")])) is None
    moved = [sample(0.0, "lock", "lock", ticks=5), sample(2.0, "lock", "lock", ticks=150)]
    assert closed_circle(compare(moved)) is None
