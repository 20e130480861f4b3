"""Order under racing producers, bounds, and the three ways a queue can end."""

from __future__ import annotations

import threading

import pytest
from dflash_train.errors import PipelineStoppedError, WorkerFailedError
from dflash_train.fate import Fate
from dflash_train.queue import OrderedQueue, QueueClosedError
from train.stand_ins import Seen, run_all


def make(fate=None, capacity=4, lanes=2, producers=("a", "b"), first=0):
    return OrderedQueue(
        "hs-queue",
        capacity=capacity,
        lanes=lanes,
        producers=producers,
        first=first,
        fate=fate or Fate(),
        shown_to_takers=True,
    )


def nobody(_):
    return None


@pytest.mark.parametrize("first", [0, 30])
def test_each_lane_gets_its_numbers_in_order_whoever_made_them_first(first):
    queue, got = make(first=first), {0: [], 1: []}
    numbers = iter(range(first, first + 200))
    lock = threading.Lock()

    def produce(name):
        while True:
            with lock:
                index = next(numbers, None)
            if index is None:
                queue.close(name)
                return
            queue.put(index, index * 10, Seen(name), ("d0", "d1"))

    def consume(lane):
        worker = Seen(f"d{lane}")
        while True:
            try:
                got[lane].append(queue.get(lane, worker, nobody))
            except QueueClosedError:
                return

    run_all(lambda: produce("a"), lambda: produce("b"), lambda: consume(0), lambda: consume(1))
    assert got[0] == [i * 10 for i in range(first, first + 200, 2)]
    assert got[1] == [i * 10 for i in range(first + 1, first + 200, 2)]


def test_never_more_is_stored_than_the_capacity():
    queue, giver = make(capacity=3, lanes=1, producers=("a",)), Seen("a")

    def produce():
        for index in range(50):
            queue.put(index, index, giver, ("d0",))

    def consume():
        for _ in range(50):
            queue.get(0, Seen("d0"), nobody)

    run_all(produce, consume)
    assert max(depth for depth, _ in giver.depths) <= 3


def test_the_number_everybody_waits_for_is_admitted_to_a_full_queue():
    queue, giver = make(capacity=4), Seen("a")
    for index in (1, 2, 3):
        queue.put(index, index, giver, ("d0", "d1"))
    queue.put(0, 0, giver, ("d0", "d1"))
    assert queue.get(0, Seen("d0"), nobody) == 0
    assert giver.waits == []


def test_a_full_queue_names_the_drafter_that_does_not_take():
    fate, giver = Fate(), Seen("a")
    queue = make(fate, capacity=2)
    queue.put(0, 0, giver, ("d0", "d1"))
    queue.put(1, 1, giver, ("d0", "d1"))
    queue.get(0, Seen("d0"), nobody)
    thread = threading.Thread(target=lambda: swallow(queue, giver))
    thread.start()
    assert giver.is_waiting.wait(60)
    assert giver.waits == [("queue-put", "hs-queue", "d1")]
    fate.end()
    thread.join(10)
    assert not thread.is_alive()


def swallow(queue, worker):
    with pytest.raises(PipelineStoppedError):
        queue.put(3, 3, worker, ("d0", "d1"))


def test_an_empty_queue_names_the_target_that_makes_the_item():
    queue, taker = make(), Seen("d0")
    thread = threading.Thread(target=lambda: queue.get(0, taker, lambda index: f"target-{index}"))
    thread.start()
    assert taker.is_waiting.wait(60)
    assert taker.waits == [("queue-get", "hs-queue", "target-0")]
    queue.put(0, 0, Seen("a"), ("d0", "d1"))
    thread.join(10)
    assert not thread.is_alive()


def test_closed_comes_only_after_the_last_item_and_from_all_producers():
    queue, taker = make(lanes=1), Seen("d0")
    queue.put(0, "x", Seen("a"), ())
    queue.close("a")
    queue.close("b")
    assert queue.get(0, taker, nobody) == "x"
    with pytest.raises(QueueClosedError):
        queue.get(0, taker, nobody)


def test_failed_is_not_closed():
    fate = Fate()
    queue = make(fate)
    fate.fail("target-1", ValueError("bad shape"))
    with pytest.raises(PipelineStoppedError):
        queue.get(0, Seen("d0"), nobody)
    with pytest.raises(WorkerFailedError, match="target-1 failed: ValueError: bad shape"):
        fate.raise_failure()


def test_of_two_failures_the_first_is_the_cause_and_the_second_is_named():
    fate = Fate()
    fate.fail("target-0", MemoryError())
    fate.fail("loader", OSError("disk\ngone"))
    with pytest.raises(WorkerFailedError) as caught:
        fate.raise_failure()
    assert str(caught.value) == (
        "target-0 failed: MemoryError (also failed: loader: OSError: disk gone)"
    )


def test_a_queue_that_could_never_deliver_is_refused():
    with pytest.raises(ValueError, match="1 places for 2 lanes"):
        make(capacity=1)
