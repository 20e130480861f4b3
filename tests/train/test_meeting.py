"""Locks, warming up and the meeting of the drafters, with real threads."""

from __future__ import annotations

import threading

import pytest
import torch
from dflash_train.averaging import GradientMeeting, Parcel
from dflash_train.errors import PipelineStoppedError
from dflash_train.fate import Fate
from dflash_train.locks import NamedLock, WarmUp
from train.stand_ins import Seen, run_all


def parcel(value):
    return Parcel(
        gradient=torch.full((2,), float(value)),
        sums=torch.zeros(1),
        num_tokens=value,
        num_padded=value,
    )


def test_everybody_gets_all_parcels_in_rank_order_whoever_came_first():
    meeting, got = GradientMeeting(("d0", "d1", "d2"), lambda: False, Fate()), {}

    def drafter(rank):
        worker = Seen(f"d{rank}")
        for step in range(40):
            met = meeting.meet(rank, step, parcel(10 * step + rank), worker)
            got[rank, step] = [each.num_tokens for each in met.parcels]

    run_all(*(lambda rank=rank: drafter(rank) for rank in range(3)))
    for step in range(40):
        expected = [10 * step, 10 * step + 1, 10 * step + 2]
        assert [got[rank, step] for rank in range(3)] == [expected] * 3


def test_all_drafters_hear_of_a_stop_at_the_same_step():
    asked, stopped_at = threading.Event(), {}
    meeting = GradientMeeting(("d0", "d1"), asked.is_set, Fate())

    def drafter(rank):
        for step in range(10_000):
            if step == 25 and rank == 1:
                asked.set()
            if meeting.meet(rank, step, parcel(1), Seen(f"d{rank}")).stop:
                stopped_at[rank] = step
                return

    run_all(lambda: drafter(0), lambda: drafter(1))
    assert stopped_at[0] == stopped_at[1] >= 25
    assert meeting.is_stopping


def test_who_waits_at_the_meeting_says_who_is_late():
    fate = Fate()
    meeting, worker = GradientMeeting(("d0", "d1"), lambda: False, fate), Seen("d0")

    def wait():
        with pytest.raises(PipelineStoppedError):
            meeting.meet(0, 0, parcel(1), worker)

    thread = threading.Thread(target=wait)
    thread.start()
    assert worker.is_waiting.wait(60)
    assert worker.waits == [("peer", "gradient-meeting", "d1")]
    fate.fail("d1", ValueError())
    thread.join(10)
    assert not thread.is_alive()


def test_who_waits_for_a_lock_says_which_and_for_whom():
    fate = Fate()
    lock, waiter = NamedLock("weights-of-d0", fate), Seen("d1")
    holds, release = threading.Event(), threading.Event()

    def hold():
        with lock.held(Seen("d0")):
            holds.set()
            release.wait(60)

    def want():
        with lock.held(waiter):
            assert lock.owner == "d1"

    holder, other = threading.Thread(target=hold), threading.Thread(target=want)
    holder.start()
    assert holds.wait(60)
    other.start()
    assert waiter.is_waiting.wait(60)
    assert waiter.waits == [("lock", "weights-of-d0", "d0")]
    release.set()
    holder.join(10)
    other.join(10)
    assert lock.owner is None


def test_a_lock_released_by_the_end_of_the_run_is_not_taken():
    fate = Fate()
    lock, waiter = NamedLock("weights", fate), Seen("d1")
    entered = []

    def want():
        with pytest.raises(PipelineStoppedError), lock.held(waiter):
            entered.append(True)

    thread = threading.Thread(target=want)
    with lock.held(Seen("d0")):
        thread.start()
        assert waiter.is_waiting.wait(60)
        fate.end()
    thread.join(10)
    assert not thread.is_alive()
    assert entered == []


def test_one_worker_warms_up_at_a_time_and_nobody_works_before_all_have():
    names = ("a", "b", "c", "d")
    warm_up, inside, most, done = WarmUp(names, Fate()), [], [], []

    def work(name):
        with warm_up.turn(Seen(name)):
            inside.append(name)
            most.append(len(inside))
            inside.remove(name)
            done.append(name)
        assert len(done) == len(names)

    run_all(*(lambda name=name: work(name) for name in names))
    assert set(most) == {1}


def test_a_failure_while_warming_up_lets_the_others_go():
    fate = Fate()
    warm_up, ended = WarmUp(("a", "b"), fate), []

    def fails():
        with pytest.raises(MemoryError), warm_up.turn(Seen("a")):
            raise MemoryError
        fate.fail("a", MemoryError())

    def waits():
        with pytest.raises(PipelineStoppedError), warm_up.turn(Seen("b")):
            pass
        ended.append("b")

    run_all(fails, waits)
    assert ended == ["b"]
