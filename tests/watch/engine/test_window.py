"""The bounded past: nothing counted twice, nothing kept for ever, waits read as a graph."""

from __future__ import annotations

import msgspec
from dflash_watch.detectors import storage_wait
from dflash_watch.detectors.examples import (
    T0,
    build_view,
    example,
    frames,
    log,
    process,
    stuck_after,
    worker,
)
from dflash_watch.frame import Frame, RunSample, ThreadSample
from dflash_watch.readers.logtext import LogReader
from dflash_watch.window import Window
from dflash_watch.window.tracks import how_it_ended
from dflash_watch.window.waits import read_waits
from hypothesis import given, settings
from hypothesis import strategies as st


def window(*records: Frame) -> Window:
    made = Window(lambda: LogReader(()))
    for record in records:
        made.take(record)
    return made


def test_cpu_is_a_difference_of_ticks_over_the_time_between():
    made = window(*frames(5))
    assert made.tracks.cpu_ratio(0.0, 100) == 0.5


def test_text_that_a_new_agent_reads_again_is_not_taken_twice():
    first = log("step 1\nstep 2\n", offset=0, inode=4)
    again = log("step 1\nstep 2\nstep 3\n", offset=0, inode=4)
    made = window(*frames(1, logs=first), *frames(1, start=1, logs=again))
    assert list(made.logs.main().lines) == ["step 1", "step 2", "step 3"]


def test_masked_or_undecodable_text_is_counted_as_it_lies_in_the_file():
    first = log("step 1 ***\n\ufffd\ufffd\n", offset=0, inode=4, text_bytes=30)
    again = log("step 1 ***\n\ufffd\ufffd\nstep 2\n", offset=0, inode=4, text_bytes=37)
    after = log("step 3\n", offset=37, inode=4, text_bytes=7)
    made = window(
        *frames(1, logs=first), *frames(1, start=1, logs=again), *frames(1, start=2, logs=after)
    )
    assert list(made.logs.main().lines) == ["step 1 ***", "\ufffd\ufffd", "step 2", "step 3"]


def test_another_file_at_the_same_offset_is_taken():
    first, other = log("a\n", offset=0, inode=4), log("b\n", offset=0, inode=5)
    made = window(*frames(1, logs=first), *frames(1, start=1, logs=other))
    assert list(made.logs.main().lines)[-1] == "b"


def test_events_that_come_again_are_not_taken_twice():
    event = {"kind": "worker-failed", "seq": 4, "t": T0, "worker": "target-0"}
    made = window(*frames(3, events=(event,)))
    assert len(made.told.failed) == 1


def test_a_thread_that_is_not_listed_any_more_is_remembered_with_its_time():
    def threads(i: int) -> dict[str, tuple[ThreadSample, ...]]:
        both = (ThreadSample(11, "python", "S", i), ThreadSample(12, "python", "S", i))
        return {"10": both if i < 5 else both[:1]}

    made = window(*frames(8, threads=threads))
    ((pid, tid, track),) = made.tracks.gone_threads
    assert (pid, tid, track.gone_t, track.lived_s()) == (10, 12, T0 + 5, 4.0)


def test_frames_without_threads_lose_no_thread():
    def threads(i: int) -> dict[str, tuple[ThreadSample, ...]] | None:
        return {"10": (ThreadSample(11, "python", "S", i),)} if i % 2 == 0 else None

    made = window(*frames(6, threads=threads))
    assert not made.tracks.gone_threads


def test_of_a_list_that_was_cut_only_threads_before_its_end_can_be_gone():
    def threads(i: int) -> dict[str, tuple[ThreadSample, ...]]:
        tids = (11, 12, 13, 14) if i < 3 else (11, 13)
        return {"10": tuple(ThreadSample(tid, "python", "S", i) for tid in tids)}

    made = window(*frames(6, threads=threads, threads_left_out={"10": 700}))
    assert [tid for _, tid, _ in made.tracks.gone_threads] == [12]
    assert sorted(made.tracks.threads) == [(10, 11), (10, 13)]


def test_a_thread_seen_every_five_seconds_is_found_waiting_for_storage_in_every_frame():
    row = ThreadSample(12, "python", "D", 5, None, None, "nfs_wait_bit_killable", "0")
    rows = {"10": (ThreadSample(11, "python", "S", 9), row)}
    silent = stuck_after(14, 23, lambda s: worker("drafter-0", s, step=14))
    records = [
        msgspec.structs.replace(frame, threads=rows if i % 5 == 0 else None)
        for i, frame in enumerate(silent)
    ]
    for last in range(32, 37):
        view = build_view(example(tuple(records[:last])))
        (found,) = storage_wait.DETECTOR.detect(view, storage_wait.DETECTOR.params)
        assert "nfs_wait" in found.summary


def test_a_reused_pid_is_another_process_and_another_run():
    old = frames(3, run=RunSample(state="found", how="pid", root_pid=10, root_start_ticks=1))
    new = frames(
        2, start=3, processes=lambda i: (process(i, start_ticks=900),),
        run=RunSample(state="found", how="pid", root_pid=10, root_start_ticks=900),
    )  # fmt: skip
    made = window(*old, *new)
    assert made.restarts == 1
    assert made.first_t == T0 + 3


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(0, 400), max_size=40))
def test_memory_is_bounded_whatever_comes(sizes):
    made = Window(lambda: LogReader(()))
    for i, size in enumerate(sizes):
        threads = {"10": tuple(ThreadSample(1000 * i + k, "w", "S", k) for k in range(size))}
        for frame in frames(1, start=i, threads=threads, logs=log(f"line {i}\n" * size)):
            made.take(frame)
    assert len(made.tracks.gone_threads) <= 200
    assert len(made.tracks.threads) <= 400
    assert all(len(track.lines) <= 200 for track in made.logs.tracks.values())


def crew(*slots) -> dict:
    return {slot.name: slot for slot in slots}


def test_a_lock_cycle_is_found_though_others_wait_behind_it():
    waits = read_waits(
        crew(
            worker("drafter-0", 9, wait="lock", waits_for="drafter-1"),
            worker("drafter-1", 9, wait="lock", waits_for="drafter-0"),
            worker("target-0", 9, wait="queue-put"),
        )
    )
    assert sorted(waits.cycle) == ["drafter-0", "drafter-1"]


def test_a_queue_both_of_whose_sides_wait_is_a_cycle():
    waits = read_waits(
        crew(worker("target-0", 9, wait="queue-put"), worker("drafter-0", 9, wait="queue-get"))
    )
    assert sorted(waits.cycle) == ["drafter-0", "target-0"]


def test_a_queue_with_one_giver_at_work_is_no_cycle():
    waits = read_waits(
        crew(
            worker("target-0", 9, wait="queue-put"), worker("target-1", 0.1),
            worker("drafter-0", 9, wait="queue-get"),
        )
    )  # fmt: skip
    assert waits.cycle == ()


def test_a_chain_ends_at_the_one_who_waits_for_nobody():
    waits = read_waits(
        crew(
            worker("drafter-1", 9), worker("drafter-0", 9, wait="peer", waits_for="drafter-1"),
            worker("target-0", 9, wait="queue-put", waits_for="drafter-0"),
        )
    )  # fmt: skip
    assert waits.cycle == ()
    assert set(waits.awaited["drafter-1"]) == {"drafter-0", "target-0"}


def test_a_short_wait_is_no_edge():
    waits = read_waits(
        crew(
            worker("drafter-0", 1, wait="lock", waits_for="drafter-1"),
            worker("drafter-1", 1, wait="lock", waits_for="drafter-0"),
        )
    )
    assert waits.edges == {}


def test_wait_statuses_are_read_as_the_kernel_means_them():
    assert how_it_ended(256) == (1, "exit code 1")
    assert how_it_ended(9) == (-9, "ended by signal 9")
    assert how_it_ended(0) == (0, "exit code 0")
    assert how_it_ended(None)[0] is None


def test_what_begins_and_never_ends_takes_bounded_room():
    made, count = Window(lambda: LogReader(())), 1000
    for i in range(count):
        events = (
            {"kind": "autotune", "edge": "begin", "kernel": f"k{i}", "key": "a", "t": T0},
            {"kind": "phase", "edge": "begin", "name": "evaluating", "worker": f"w{i}", "t": T0},
            {"kind": "worker-failed", "worker": f"w{i}", "t": T0},
        )
        named = log(f"line {i}\n", offset=0, inode=i, via=f"fd {i}")
        first = log("step 1\n", offset=7 * i, inode=9)
        made.take(frames(1, start=i, events=events, logs=(*first, *named))[0])
    told = made.told
    assert max(len(told.tuning), len(told.phases), len(told.failed), len(made.logs.tracks)) <= 101
    assert {"fd 1", f"fd {count - 1}"} <= set(made.logs.tracks)
