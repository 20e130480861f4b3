"""The board: every field from the window, nothing where nothing is known, a gap for old data."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from dflash_watch.frame import Disk, Gap, GpuSample, HostSample
from dflash_watch.model import RunOptions, Verdict
from dflash_watch.render.plain import heartbeat
from dflash_watch.window.speed import StepPace
from scenarios.timeline import LOG, Timeline


def cards(t: float, watts: float = 600.0) -> tuple[GpuSample, ...]:
    return tuple(
        GpuSample(
            index=i, name="H200", utilization_ratio=0.2, utilization_history=(0.9, 1.0),
            power_watts=1.0, power_history_watts=(watts, watts), power_limit_watts=700.0,
            memory_used_bytes=100, memory_total_bytes=141, temperature_celsius=60.0, sm_ratio=0.8,
        )
        for i in range(2)
    )  # fmt: skip


def test_a_gpu_row_shows_the_drivers_history_not_the_point_sample():
    options = RunOptions(roles={"target": (0,), "drafter": (1,)})
    run = Timeline.training(40, gpus=cards, options=options)
    first, second = run.last.board.gpus
    assert (first.role, second.role) == ("target", "drafter")
    assert round(first.utilization_ratio, 2) == 0.95
    assert first.power_watts == 600.0
    assert round(first.sm_ratio, 2) == 0.8
    assert len(first.power_history) == 60
    assert first.power_history[0] is None
    assert first.power_history[-1] == 600.0


def test_roles_come_from_the_manifest_when_nobody_says_them():
    run = Timeline.training(5, gpus=cards)
    assert [row.role for row in run.last.board.gpus] == [None, None]
    run.engine.window.told.manifest = {
        "workers": [
            {"name": "target-0", "role": "target", "device": "cuda:0"},
            {"name": "drafter-0", "role": "drafter", "device": "cuda:1"},
            {"name": "main", "role": "main", "device": "cpu"},
        ]
    }
    run.go(1)
    assert [row.role for row in run.last.board.gpus] == ["target", "drafter"]


def test_a_figure_outside_its_own_recent_band_is_marked():
    run = Timeline.training(50, gpus=cards)
    assert run.last.board.gpus[0].marks == ()
    run.gpus = lambda t: cards(t, watts=120.0)
    run.go(5)
    assert "power_watts" in run.last.board.gpus[0].marks


def test_rows_without_an_answer_are_stale_and_say_how_old_they_are():
    run = Timeline.training(10, gpus=cards)
    run.gpus, run.gaps = None, (Gap(source="gpu", reason="no answer"),)
    run.go(12)
    row = run.last.board.gpus[0]
    assert row.state == "stale"
    assert row.note == "no answer; values 12 s old"
    assert row.memory_used_bytes == 100


def test_the_queue_says_its_trend_and_who_waits():
    run = Timeline.training(30, depth=8)
    assert run.last.board.queue.trend == "FULL"
    run = Timeline.training(30, depth=0)
    assert run.last.board.queue.trend == "EMPTY"
    for name in ("drafter-0", "drafter-1"):
        run.wait(name, "queue-get")
    run.go(3)
    assert run.last.board.queue.waiting == "drafter waits"


def test_rates_of_both_sides_come_from_the_items_of_the_workers():
    run = Timeline.training(30)
    queue = run.last.board.queue
    assert round(queue.in_per_s) == round(queue.out_per_s) == 24
    run.freeze()
    run.go(12)
    assert run.last.board.queue.out_per_s == 0.0


def test_throughput_is_a_point_a_bucket_and_silence_is_a_gap():
    run = Timeline.training(60)
    points = run.last.board.throughput
    assert len(points) == 120
    assert (points[-2].low, points[-2].high) == (6000.0, 6000.0)
    assert points[0].low is None


def test_step_total_age_and_time_left():
    run = Timeline.training(60, total_steps=2000, log_mode="silent")
    board = run.last.board
    assert (board.step, board.total_steps) == (720, 2000)
    assert board.last_step_age_s < 0.1
    assert 90 < board.eta_s < 120
    assert board.loss == 2.0
    assert board.phase == "training"


@pytest.mark.parametrize("before", [0, 900])
def test_time_left_is_not_taken_from_steps_that_were_in_the_log_already(before):
    run = Timeline(is_ours=False, log_mode="silent")
    run.hello()
    for step in range(1, before + 1):
        run.say(f"step {step}/10000 loss 2.0 1000 tok/s\n")
    for step in range(before + 1, before + 61):
        run.say(f"step {step}/10000 loss 2.0 1000 tok/s\n")
        run.go(1)
    assert run.last.board.step == before + 60
    assert abs(run.last.board.eta_s - (10000 - before - 60)) < 500


def test_a_phase_shows_its_budget():
    run = Timeline.training(20)
    run.event("phase", name="evaluating", edge="begin", budget_s=90.0)
    run.go(4)
    board = run.last.board
    assert (board.phase, board.phase_budget_s) == ("evaluating", 90.0)
    assert board.phase_s == 4.0


def test_the_log_panel_has_the_newest_lines_and_the_bar_as_it_stands():
    run = Timeline.training(10, log_mode="silent")
    run.say("one\ntwo\x1b[31m red\x1b[0m\n\r 50%|##  | 5/10 [00:05<00:05, 1.0it/s]")
    run.go(1)
    log = run.last.board.log
    assert log.path == LOG
    assert log.lines[:2] == ("one", "two red")
    assert "5/10" in log.lines[-1]


def test_the_host_in_one_line():
    run = Timeline.training(3)
    frame = run.frame()
    disks = (Disk(path="/", what="log", free_bytes=2**30, total_bytes=2**31),)
    host = HostSample(cpus=2, load1=1.5, memory_available_bytes=4 * 2**30, disks=disks)
    seen = run.engine.advance(msgspec.structs.replace(frame, host=host, t=run.t + 1))
    assert seen.board.host_line == "load 1.5/2 · 4.0 GiB memory free · 1.0 GiB free for log"


def test_nothing_known_is_none_and_never_zero():
    run = Timeline(is_ours=False, log_mode="none")
    run.hello()
    board = run.last.board
    assert (board.step, board.tokens_per_s, board.eta_s, board.queue, board.pid) == (None,) * 5
    assert board.gpus == ()
    assert board.log.lines == ()


def test_the_newest_minutes_are_kept_in_fine_points_as_they_were_told():
    run = Timeline.training(90, throughput_every=1)
    recent = run.last.board.recent
    assert len(recent) == 90
    assert recent[-1].t >= run.t - 2.0
    assert {later.t - one.t for one, later in itertools.pairwise(recent)} == {1.0}
    run.go(400)
    recent = run.last.board.recent
    assert 299 <= len(recent) <= 301
    assert recent[0].t >= run.t - 300.0
    run.stop_steps()
    stopped = run.t
    run.throughput_every = 10**6
    run.go(30)
    assert run.last.board.recent[-1].t <= stopped


def test_a_point_has_the_mean_of_what_was_told_in_it():
    run = Timeline.training(30, throughput_every=1)
    run.tokens_per_s = 12000.0
    run.go(30)
    mixed = [one for one in run.last.board.throughput if one.low != one.high]
    assert len(mixed) == 1
    assert mixed[0].low < mixed[0].mean < mixed[0].high


def test_a_log_with_steps_and_no_tokens_shows_steps_a_second():
    run = Timeline.foreign(60, log_mode="bar", steps_per_s=4.0)
    board = run.last.board
    assert (board.throughput_unit, board.tokens_per_s) == ("steps/s", None)
    assert round(board.steps_per_s, 1) == 4.0
    assert round(board.recent[-1].high, 1) == 4.0
    assert any(point.high is not None for point in board.throughput)
    assert "4 steps/s" in heartbeat(run.last)
    run.log_mode = "lines"  # and now it says tokens
    run.go(5)
    board = run.last.board
    assert (board.throughput_unit, board.steps_per_s) == ("tok/s", None)
    assert board.tokens_per_s == 6000.0


def test_steps_a_second_are_counted_over_five_seconds_and_anew_when_the_counter_falls():
    pace = StepPace()
    for step in (1, 7, 103):  # a log that was there before: all of it at one moment
        pace.take(10.0, step)
    assert pace.speed.newest is None
    for second, step in enumerate((105, 108, 109, 112, 113, 115), start=11):
        pace.take(float(second), step)
    assert pace.speed.newest == 2.0
    assert max(bucket.high for bucket in pace.speed.fine) == 2.5
    pace.take(17.0, 1)
    assert pace.speed.newest == 2.0
    pace.take(37.0, 11)
    assert pace.speed.newest == 0.5


def test_a_run_that_is_over_has_no_flow_and_nothing_overdue():
    run = Timeline.training(30, depth=8)
    assert run.last.board.queue.trend == "FULL"
    run.stop_steps()
    run.event("exit", code=0, reason="done")
    run.process = "gone"
    run.go(90)
    assert run.last.verdict == Verdict.FINISHED
    queue = run.last.board.queue
    assert (queue.in_per_s, queue.out_per_s, queue.trend, queue.waiting) == (None,) * 4
    assert "progress-overdue" not in {one.name for one in run.last.symptoms}
    told = " ".join(one.text for one in run.last.evidence)
    assert "no step for" not in told
    assert "log silent" not in told


@pytest.mark.parametrize(
    ("reasons", "words", "in_text"),
    [
        (None, None, False),
        (0x0, "none", False),
        (0x1, "it idles", False),
        (0x4, "its own power limit", True),
        (0x48, "hardware thermal slowdown, hardware slowdown", True),
    ],
)
def test_a_gpu_row_says_in_words_what_holds_its_clocks(reasons, words, in_text):
    def held(t: float) -> tuple[GpuSample, ...]:
        return tuple(msgspec.structs.replace(one, clock_reasons=reasons) for one in cards(t))

    row = Timeline.training(20, gpus=held).last.board.gpus[0]
    assert row.clocks == words
    assert ("; clocks: " in row.load_text) is in_text
