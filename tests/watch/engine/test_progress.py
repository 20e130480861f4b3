"""Steps, phases and work, from whatever says them."""

from __future__ import annotations

import pytest
from dflash_watch.detectors.examples import (
    PID,
    T0,
    beats,
    frames,
    log,
    process,
    stacks,
    thread,
    worker,
)
from dflash_watch.frame import RunSample, StackFrame, ThreadStack
from dflash_watch.phases import phase_of_stacks
from dflash_watch.progress import Progress
from dflash_watch.readers.logtext import LogReader
from dflash_watch.window import Window


def follow(*records) -> tuple[Window, Progress]:
    window, progress = Window(lambda: LogReader(())), Progress()
    for record in records:
        window.take(record)
        progress.advance(window)
    return window, progress


def test_steps_by_beats_are_dated_by_their_age():
    _, progress = follow(*frames(3, beats=beats(worker("drafter-0", stuck_s=0.5, step=7))))
    assert (progress.step, progress.source) == (7, "beats")
    assert progress.last_step_t == pytest.approx(T0 + 1.5)


def test_a_target_that_works_on_is_no_step_while_drafters_exist():
    page = beats(worker("drafter-0", stuck_s=30.0, step=7), worker("target-0", stuck_s=0.1))
    _, progress = follow(*frames(3, beats=page))
    assert progress.last_step_t == pytest.approx(T0 - 28.0)


def test_a_beat_without_a_step_is_no_first_step():
    _, progress = follow(*frames(3, beats=beats(worker("drafter-0", step=0))))
    assert progress.first_step_t is None


def test_the_same_number_again_is_no_progress():
    _, progress = follow(*frames(20, logs=lambda i: log(f"step {min(i, 4)} loss 2.0\n")))
    assert progress.last_step_t == T0 + 4


def test_in_a_log_of_several_starts_the_newest_step_counts_not_the_highest():
    lines = [*range(104), *range(40)]
    text = "".join(f"step {i} loss 2.0\n" for i in lines)
    _, progress = follow(*frames(2, logs=lambda i: log(text if i == 0 else "")))
    assert progress.step == 39


def test_ranks_that_write_one_log_do_not_set_the_step_back():
    text = "".join(f"step {i + 4 * (i % 2)} loss 2.0\n" for i in range(40))
    _, progress = follow(*frames(2, logs=lambda i: log(text if i == 0 else "")))
    assert progress.step == 43


def test_an_evaluation_bar_beside_the_training_bar_does_not_take_its_place():
    training = frames(5, logs=lambda i: log(f"\r 50%|## | {100 + i}/1000 [00:05<00:05, 9.0it/s]"))
    small = frames(
        5, start=5, logs=lambda i: log(f"\r 50%|## | {i}/20 [00:01<00:01, 9.0it/s, eval]")
    )
    _, progress = follow(*training, *small)
    assert (progress.step, progress.total_steps) == (104, 1000)


def test_a_run_that_only_waits_is_still_and_one_that_reads_is_not():
    def idle(i: int):
        return (process_at(i, rchar=0),)

    def reading(i: int):
        return (process_at(i, rchar=i * 2_000_000),)

    assert follow(*frames(8, processes=idle))[1].work.moves is False
    assert follow(*frames(8, processes=reading))[1].work.moves is True
    assert follow(*frames(1, processes=idle))[1].work.moves is None


def test_steps_that_take_next_to_no_work_are_movement():
    def says(i: int):
        return log(f"step {min(i, 12)} loss 2.0\n" if i <= 12 else "")

    window, progress = follow(*frames(20, processes=lambda i: (process_at(i),), logs=says))
    assert progress.work.moves is False
    assert progress.last_step_t == T0 + 12
    assert progress.still_s(window) == pytest.approx(7.0)


def process_at(i: int, **more):
    return process(i, cpu_ticks=1000, **more)


@pytest.mark.parametrize(
    ("place", "phase"),
    [
        ("/s/site-packages/torch/_inductor/graph.py:codegen", "compiling"),
        ("/s/site-packages/triton/runtime/autotuner.py:run", "tuning"),
        ("/x/train.py:save_checkpoint", "checkpointing"),
        ("/x/train.py:evaluate_all", "evaluating"),
        ("/s/site-packages/torch/utils/checkpoint.py:forward", None),
        ("/s/site-packages/torch/_inductor/compile_worker/subproc_pool.py:_read", None),
        ("/x/train.py:train_step", None),
    ],
)
def test_phases_are_read_off_frames_and_parked_threads_are_none(place, phase):
    assert phase_of_stacks(stacks("A", 1, thread(PID, place))) == phase


def test_importing_torch_is_loading_though_its_compiler_is_among_the_frames():
    importing = ThreadStack(
        tid=PID,
        frames=(
            StackFrame("<module>", "/s/site-packages/torch/_dynamo/x.py", 1),
            StackFrame("_find_and_load", "<frozen importlib._bootstrap>", 1),
        ),
    )
    assert phase_of_stacks(stacks("A", 1, importing)) == "loading"


def test_steps_in_the_log_count_when_a_run_that_told_its_steps_tells_no_more():
    manifest = {"process": {"pid": PID}}
    run = RunSample(state="found", how="run-dir", root_pid=PID, manifest=manifest)
    told = {"kind": "throughput", "seq": 1, "t": T0 + 1, "step": 3, "tokens_per_s": 9.0}

    def events(i: int):
        return (told,) if i == 1 else ()

    lines = frames(40, run=run, events=events, logs=lambda i: log(f"step {i + 2} loss 2.0\n"))
    _, early = follow(*lines[:8])
    assert (early.step, early.source) == (3, "events")
    _, late = follow(*lines)
    assert (late.step, late.source, late.last_step_t) == (41, "log", T0 + 39)


@pytest.mark.parametrize("bad", [{}, {"code": "zero", "reason": 5}, {"code": None, "reason": "?"}])
def test_an_exit_event_that_tells_no_end_is_none(bad):
    window, _ = follow(*frames(3, events=({"kind": "exit", "seq": 1, "t": T0, **bad},)))
    assert window.told.exit is None
    good = {"kind": "exit", "seq": 1, "t": T0, "code": None, "reason": "stopped"}
    window, _ = follow(*frames(3, events=(good,)))
    assert window.told.exit is not None
