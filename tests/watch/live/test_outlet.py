"""A consumer that blocks or fails holds up nobody."""

import threading

from dflash_watch.outlet import Outlet

LONG_S = 60.0


def test_items_arrive_in_order_and_closing_waits_for_them():
    seen: list[int] = []
    outlet = Outlet("t", seen.append, capacity=100)
    for number in range(100):
        outlet.put(number)
    assert outlet.close(LONG_S)
    assert seen == list(range(100))


def test_a_blocked_consumer_costs_the_oldest_items_and_not_the_caller():
    gate, taken, seen = threading.Event(), threading.Event(), []

    def consume(number: int) -> None:
        taken.set()
        gate.wait()
        seen.append(number)

    outlet = Outlet("t", consume, capacity=3)
    outlet.put(0)
    taken.wait(LONG_S)
    for number in range(1, 11):
        outlet.put(number)
    assert outlet.dropped == 7
    assert not outlet.close(0.01)
    gate.set()
    assert outlet.close(LONG_S)
    assert seen == [0, 8, 9, 10]


def test_a_consumer_that_fails_ends_its_outlet_once_and_raises_nowhere():
    ends, told = [], threading.Event()

    def consume(_item: int) -> None:
        raise BrokenPipeError

    def on_end(error: Exception) -> None:
        ends.append(error)
        told.set()

    outlet = Outlet("t", consume, capacity=5, on_end=on_end)
    outlet.put(1)
    assert told.wait(LONG_S)
    outlet.put(2)
    assert not outlet.close(LONG_S)
    assert [type(error) for error in ends] == [BrokenPipeError]
