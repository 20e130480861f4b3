"""What the first look at a run teaches about its pace."""

from __future__ import annotations

import msgspec
import pytest
from dflash_watch.detectors.examples import PID, T0, beats, frames, log, process, worker
from dflash_watch.engine import Engine
from dflash_watch.frame import Frame, RunSample
from dflash_watch.history import gaps_before
from dflash_watch.limits import START_S
from dflash_watch.model import RunOptions, Snapshot, Verdict
from dflash_watch.playbooks import load_playbooks
from dflash_watch.readers.logtext import LogReader
from dflash_watch.window import Window

OURS = {"run_id": "r", "process": {"pid": PID}}


def backlog(lines: list[str], silent_s: float, count: int = 5, age_s: float = 600.0) -> list[Frame]:
    """Looks at a run that does not move: its log ended so long before the first of them."""

    def old(i: int):
        sample = log("".join(f"{line}\n" for line in lines) if i == 0 else "")
        return (msgspec.structs.replace(sample[0], mtime_age_s=silent_s + i),)

    def main(i: int):
        return (process(i, cpu_ticks=1000, age_s=age_s + i),)

    return list(frames(count, logs=old, processes=main))


def stamped(count: int, every_s: int) -> list[str]:
    """Lines with a step and the moment each."""
    seconds = (every_s * i for i in range(count))
    clock = (f"{s // 3600:02d}:{s // 60 % 60:02d}:{s % 60:02d}" for s in seconds)
    return [f"2026-11-29 {moment} step {i} loss 2.0" for i, moment in enumerate(clock, 1)]


def look(records: list[Frame], *, takes_stacks: bool = False) -> Snapshot:
    """The last word of a fresh engine on them."""
    engine = Engine(RunOptions(), load_playbooks(), takes_stacks=takes_stacks)
    for record in records:
        snapshot = engine.advance(record)
    return snapshot


def gaps(record: Frame):
    window = Window(lambda: LogReader(()))
    window.take(record)
    return gaps_before(window)


def test_stamped_lines_tell_each_gap():
    (first, *_) = backlog(stamped(10, 3), 0.0)
    assert [gap.longest_s for gap in gaps(first)] == [3.0] * 9


def test_lines_without_a_moment_are_spread_over_the_life_of_the_process():
    lines = [f"step {i} loss 2.0" for i in range(1, 51)]
    (first, *_) = backlog(lines, silent_s=100.0, age_s=600.0)
    (gap,) = gaps(first)
    assert (gap.longest_s, gap.steps, gap.over_s) == (pytest.approx(10.0), 50, pytest.approx(500.0))


def test_lines_of_an_earlier_run_in_the_same_file_count_for_nothing():
    lines = [f"step {i} loss 2.0" for i in (*range(1, 51), *range(1, 6))]
    (first, *_) = backlog(lines, silent_s=100.0, age_s=600.0)
    assert gaps(first)[0].steps == 5


def test_a_log_older_than_the_process_teaches_nothing():
    lines = [f"step {i} loss 2.0" for i in range(1, 51)]
    (first, *_) = backlog(lines, silent_s=700.0, age_s=600.0)
    assert gaps(first) == ()


def test_a_young_process_may_only_have_shown_a_burst():
    lines = [f"step {i} loss 2.0" for i in range(1, 51)]
    (first, *_) = backlog(lines, silent_s=50.0, age_s=70.0)
    assert gaps(first) == ()


def event(seq: int, t: float, **keys: object) -> dict[str, object]:
    return {"seq": seq, "t": T0 + t, **keys}


def test_events_tell_gaps_and_those_with_a_phase_in_them_apart():
    told = (
        event(1, -100, kind="throughput", step=10),
        event(2, -90, kind="throughput", step=20),
        event(3, -85, kind="phase", name="evaluating", edge="begin"),
        event(4, -30, kind="phase", name="evaluating", edge="end"),
        event(5, -25, kind="throughput", step=21),
        event(6, -20, kind="heartbeat", step=26),
    )
    run = RunSample(state="found", how="run-dir", root_pid=PID, manifest=OURS)
    (first,) = frames(1, events=told, run=run)
    assert [(gap.phase, gap.longest_s, gap.steps) for gap in gaps(first)] == [
        ("training", 10.0, 10), ("evaluating", 65.0, 1), ("training", 5.0, 5),
    ]  # fmt: skip
    (seen,) = frames(1, events=told, run=run, beats=beats(worker("drafter-0", stuck_s=20.0)))
    assert gaps(seen)[0].longest_s == pytest.approx(3.0)


def test_silence_that_the_log_proves_is_a_stall_in_one_look():
    snapshot = look(backlog(stamped(60, 1), silent_s=51.0))
    assert snapshot.verdict is Verdict.STALLED
    assert snapshot.limit is not None
    assert snapshot.limit.seconds < START_S


def test_the_same_silence_of_a_run_whose_steps_take_that_long_is_none():
    snapshot = look(backlog(stamped(60, 30), silent_s=51.0))
    assert snapshot.verdict is Verdict.RUNNING


def test_a_watch_that_takes_stacks_waits_for_them():
    snapshot = look(backlog(stamped(60, 1), silent_s=51.0), takes_stacks=True)
    assert snapshot.verdict is not Verdict.STALLED
    assert snapshot.wants or snapshot.verdict is Verdict.QUIET


def test_a_run_that_works_while_its_log_is_silent_is_not_stalled_in_one_look():
    records = backlog(stamped(60, 1), silent_s=51.0)
    busy = [msgspec.structs.replace(r, processes=(process(i),)) for i, r in enumerate(records)]
    assert look(busy).verdict is Verdict.QUIET


def test_steps_seen_from_the_first_on_teach_as_they_are_made():
    engine = Engine(RunOptions(), load_playbooks())
    for record in frames(12, logs=lambda i: log(f"step {i} loss 2.0\n")):
        engine.advance(record)
    assert engine.limits.is_taught("training")
    assert engine.limits.limit("training").seconds <= 12.0


def test_what_was_learned_before_is_not_learned_again():
    records = backlog(stamped(60, 1), silent_s=1.0)
    first = Engine(RunOptions(), load_playbooks())
    first.advance(records[0])
    again = Engine(RunOptions(), load_playbooks(), limits=first.limits)
    before = first.limits.to_data()
    again.advance(records[0])
    assert again.limits.to_data() == before
