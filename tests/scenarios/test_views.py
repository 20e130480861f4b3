"""The run goes on and the view is what is broken: never stalled, never crashed."""

from __future__ import annotations

import pytest
from dflash_watch.engine import Engine
from dflash_watch.frame import Gap, GpuSample
from dflash_watch.limits import LearnedLimits
from scenarios.timeline import Timeline, playbooks


def settled(run: Timeline) -> tuple[str, str]:
    return run.last.verdict.value, run.last.failure


def test_a_log_renamed_away_is_running_and_named():
    run = Timeline.training()
    run.log_changes = {"path": "/runs/a/train.log.1", "path_state": "moved"}
    run.go(20)
    assert settled(run) == ("running", "log-moved")
    assert run.incidents() == []


def test_a_log_copied_and_cut_is_running_and_named():
    run = Timeline.training()
    run.log_changes = {"truncated": True, "offset": 0, "size_bytes": 0}
    run.go(1)
    run.log_changes = {}
    run.go(15)
    assert settled(run) == ("running", "log-moved")


def test_a_block_buffered_log_over_going_steps():
    run = Timeline.ours(log_mode="silent")
    run.begin_training()
    run.log_changes = {"size_bytes": 0}
    run.go(40)
    assert settled(run) == ("running", "log-not-flushed")
    assert run.incidents() == []


@pytest.mark.parametrize("size", [8192, 8264, 123_025, 130_401])
def test_a_log_in_blocks_of_whole_lines_is_named_between_the_blocks_too(size):
    """As Python up to 3.12, 3.13 and 3.14 hand them on (finding 10)."""
    run = Timeline.ours(log_mode="silent")
    run.begin_training()
    run.log_changes = {"size_bytes": 0}
    run.go(12)
    line = "step=20/1000 loss=2.5000 tok/s=9000\n"
    block = line * (min(size, 65536) // len(line))  # a frame carries no more
    for number in (1, 2):
        run.log_changes = {"size_bytes": number * size, "text": block, "newlines": 200}
        run.go(1)
        run.log_changes = {"size_bytes": number * size, "text": "", "newlines": 0}
        for _ in range(14):
            run.go(1)
            assert settled(run) == ("running", "log-not-flushed")
    assert run.incidents() == []


def test_a_progress_bar_alone_is_running_and_named():
    run = Timeline.training(log_mode="bar")
    run.go(20)
    assert settled(run) == ("running", "log-no-newline")
    run = Timeline.foreign(40, log_mode="bar")
    assert settled(run) == ("running", "log-no-newline")
    assert run.incidents() == []


def test_a_hung_gpu_call_keeps_the_rows_and_the_verdict():
    cards = tuple(GpuSample(index=i, power_watts=300.0, memory_used_bytes=1) for i in range(2))
    run = Timeline.training(gpus=lambda t: cards)
    run.gpus, run.gaps = None, (Gap(source="gpu", reason="no answer: state D", since_s=3.0),)
    run.go(20)
    assert settled(run) == ("running", "gpu-view-lost")
    assert [row.state for row in run.last.board.gpus] == ["stale", "stale"]
    assert run.last.views["gpu"].startswith("gap:")


def test_a_lost_gpu_keeps_its_row():
    good = tuple(GpuSample(index=i, power_watts=300.0, memory_used_bytes=1) for i in range(2))
    run = Timeline.training(gpus=lambda t: good)
    lost = (good[0], GpuSample(index=1, state="lost", errors={"all": "GPU is lost"}))
    run.gpus = lambda t: lost
    run.go(10)
    assert settled(run) == ("running", "gpu-lost")
    assert run.last.subject == "gpu1"
    assert [row.state for row in run.last.board.gpus] == ["ok", "lost"]


def test_a_machine_without_gpus_is_not_a_lost_view():
    run = Timeline.training(gaps=(Gap(source="gpu", reason="no NVIDIA driver here"),))
    assert settled(run) == ("running", "healthy")
    assert run.last.views["gpu"].startswith("none:")


def test_a_cut_connection_is_blind_with_its_reason_then_as_before():
    run = Timeline.training()
    run.link("lost", "connection reset by peer")
    run.unseen(30)
    assert settled(run) == ("blind", "watch-lost")
    assert "connection reset" in run.last.summary
    assert run.last.last_verdict == "running"
    run.link("up")
    run.hello()
    run.go(20)
    assert settled(run) == ("running", "healthy")
    assert run.incidents() == []
    assert run.verdicts() == ["initialising", "running", "blind", "running"]


def test_frames_that_stay_away_are_blind_without_any_word_of_the_link():
    run = Timeline.training()
    run.unseen(20)
    assert settled(run) == ("blind", "watch-lost")
    run.go(1)
    assert settled(run) == ("running", "healthy")


def test_a_frozen_container_is_blind_and_not_a_stall_after_the_thaw():
    run = Timeline.training()
    run.unseen(60, frozen=True)
    assert run.last.verdict == "blind"
    run.go(20)
    assert run.verdicts() == ["initialising", "running", "blind", "running"]
    assert run.incidents() == []


def test_a_stall_that_began_before_the_view_was_lost_is_still_there_afterwards():
    run = Timeline.training()
    run.freeze()
    run.go(20)
    assert run.last.verdict == "stalled"
    run.link("lost", "timed out")
    run.unseen(30)
    assert run.last.verdict == "blind"
    assert run.last.last_verdict == "stalled"
    run.link("up")
    run.hello()
    run.go(10)
    assert run.last.verdict == "stalled"
    assert len(run.incidents()) == 1


def test_no_frame_is_taken_twice():
    run = Timeline.training()
    before = run.last
    run.feed(run.records[-1])
    assert run.last == before


def test_a_blind_gap_teaches_no_limit():
    run = Timeline.training(60)
    before = run.engine.limits.limit("training")
    run.unseen(90, frozen=True)
    run.go(10)
    assert run.engine.limits.limit("training").seconds == before.seconds


def test_attempts_to_connect_again_keep_the_reason_of_the_loss():
    run = Timeline.training()
    run.link("lost", "container is frozen")
    run.link("connecting")
    run.unseen(10)
    assert settled(run) == ("blind", "watch-lost")
    assert "container is frozen" in run.last.summary


def test_a_finished_run_stays_finished_when_the_link_goes():
    run = Timeline.training()
    run.event("exit", code=0, reason="done")
    run.go(2)
    run.link("closed", "agent ended")
    assert run.last.verdict == "finished"


def test_one_look_at_a_silent_run_claims_neither_life_nor_death():
    run = Timeline(is_ours=False)
    run.hello()
    run.say("step 50/100 loss 2.0\n")
    run.log_changes = {"mtime_age_s": 900.0}
    run.freeze()
    run.go(1)
    assert run.last.verdict == "quiet"
    assert run.last.severity == "warning"
    assert "one look" in run.last.summary


def test_a_run_that_had_stalled_before_anybody_looked_is_found_stalled():
    run = Timeline(is_ours=False)
    run.hello()
    run.say("step 50/100 loss 2.0\n")
    run.log_changes = {"mtime_age_s": 900.0}
    run.freeze()
    run.go(1)
    run.log_changes = {}
    run.go(20)
    assert run.last.verdict == "stalled"
    assert len(run.incidents()) == 1


def test_a_recording_fed_again_gives_the_same_snapshots():
    run = Timeline.training(20)
    run.freeze()
    run.wait("drafter-0", "lock", on="drafter-1")
    run.wait("drafter-1", "lock", on="drafter-0")
    run.go(30)
    again = Engine(run.options, playbooks())
    assert [again.advance(record) for record in run.records] == run.snapshots


def test_limits_learned_before_the_watchdog_restarted_still_hold():
    run = Timeline.training(60)
    kept = LearnedLimits.from_data(run.engine.limits.to_data())
    again = Engine(run.options, playbooks(), limits=kept)
    for record in run.records[:8]:
        again.advance(record)
    assert again.limits.limit("training").seconds == run.engine.limits.limit("training").seconds
    assert again.limits.is_taught("training")


def test_limits_of_another_run_are_not_believed():
    run = Timeline.training(60)
    kept = LearnedLimits.from_data(run.engine.limits.to_data())
    same = Timeline.training(3, limits=kept, steps_per_s=0.0)
    assert same.engine.limits.is_taught("training")
    kept.identity = "someone else"
    other = Timeline.training(3, limits=kept, steps_per_s=0.0)
    assert not other.engine.limits.is_taught("training")
