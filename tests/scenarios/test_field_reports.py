"""The four looks this product replaces, as far as records can express them."""

from __future__ import annotations

import pytest
from dflash_watch.engine import Engine
from dflash_watch.frame import Frame, Gap, GpuSample, Hello, LogSample, Record, RunSample
from dflash_watch.model import RunOptions, Snapshot
from scenarios.timeline import PID, T0, Timeline, playbooks

ROLES = {"target": (0, 1, 2, 3, 4), "drafter": (5, 6, 7)}
NVIDIA_SMI = """\
0, 67133 MiB, 5 %
1, 97051 MiB, 100 %
2, 67247 MiB, 9 %
3, 71411 MiB, 15 %
4, 70925 MiB, 83 %
5, 43747 MiB, 0 %
6, 96871 MiB, 100 %
7, 77249 MiB, 0 %"""
UNSEEN = (Gap(source="process", reason="not looked at"), Gap(source="gpu", reason="no text"))
LOADING = """\
  Bucket 4 [2432,3296):   9927 batches ( 16.6%)
  Bucket 5 [3296,8193):  27884 batches ( 46.6%)

Loading 5 target models...
  Target 0 on cuda:0...
\rLoading weights: 100%|██████████| 851/851 [00:03<00:00, 225.93it/s]
    Loaded in 7.2s, mem=53.8 GB
  Target 1 on cuda:1...
\rLoading weights: 100%|██████████| 851/851 [0"""


def look(options: RunOptions, **parts: object) -> Snapshot:
    """One single look, as somebody pasted it."""
    run = RunSample(state="found", how="log", root_pid=PID)
    records: tuple[Record, ...] = (
        Hello(protocol=1, agent_version="0", python="3.11", hostname="h", agent_pid=1, uid=0),
        Frame(seq=1, t=T0, boot_s=9000.0, run=run, **parts),
    )
    engine = Engine(options, playbooks())
    return [engine.advance(record) for record in records][-1]


def cards() -> tuple[GpuSample, ...]:
    made = []
    for row in NVIDIA_SMI.splitlines():
        index, memory, util = (int(part.split()[0]) for part in row.split(","))
        made.append(
            GpuSample(index=index, memory_used_bytes=memory * 2**20, utilization_ratio=util / 100)
        )
    return tuple(made)


def test_report_1_the_silent_restart_is_initialising_and_does_not_guess():
    log = LogSample(path="/w/train_opt.log", via="option", text="", mtime_age_s=600.0)
    seen = look(RunOptions(roles=ROLES), gpus=cards(), logs=(log,), gaps=UNSEEN[:1])
    assert (seen.verdict, seen.failure, seen.confidence) == ("initialising", "unknown", "low")
    uneven = [one for one in seen.symptoms if one.name == "gpu-memory-uneven"]
    assert [one.subject for one in uneven] == ["gpu5"]
    assert "57 %" in uneven[0].summary
    one_sample = {
        (one.name, one.subject) for one in seen.inconclusive if "one sample" in one.missing
    }
    assert one_sample == {
        ("worker-not-taking", "gpu5"), ("worker-not-taking", "gpu7"),
        ("worker-not-giving", "gpu0"), ("worker-not-giving", "gpu2"),
        ("worker-not-giving", "gpu3"),
    }  # fmt: skip
    assert "threads" in seen.next[0]


def test_report_2_the_eight_minute_log_is_stalled_by_its_tracebacks(captures):
    text = (captures / "autotune-oom-two-of-three-targets.log").read_text()
    log = LogSample(path="/w/new.log", via="option", text=text, offset=0, mtime_age_s=1200.0)
    seen = look(RunOptions(roles=ROLES), logs=(log,), gaps=UNSEEN)
    assert (seen.verdict, seen.failure) == ("stalled", "triton-autotune-oom")
    assert seen.confidence == "medium"
    assert seen.subject == "target-1, target-2"
    missing = " ".join(one.text for one in seen.evidence if one.kind == "missing")
    assert "whether it uses processor time" in missing
    assert not any("idle" in one.text for one in seen.evidence)


def test_report_3_loading_is_named_with_its_target_and_claims_nothing_else():
    log = LogSample(path="tmux", via="tmux dflash", text=LOADING, mtime_age_s=0.2, is_tty=True)
    seen = look(RunOptions(), logs=(log,), gaps=UNSEEN)
    assert (seen.verdict, seen.failure) == ("initialising", "loading")
    assert seen.subject == "target-1"
    assert seen.board.tokens_per_s is None


@pytest.mark.parametrize(("tokens", "verdict"), [(11_000.0, "slow"), (14_000.0, "running")])
def test_report_4_a_slow_run_is_slow_against_what_was_promised(tokens, verdict):
    options = RunOptions(expect_tokens_per_s=14_200.0)
    run = Timeline.training(120, options=options, tokens_per_s=tokens)
    assert run.last.verdict == verdict
    if verdict == "slow":
        assert run.last.failure == "throughput-below-baseline"
        assert "77 %" in run.last.summary
    assert run.incidents() == []


def test_a_figure_that_hovers_at_the_bound_does_not_flap():
    options = RunOptions(expect_tokens_per_s=10_000.0)
    run = Timeline.training(90, options=options, tokens_per_s=8_000.0)
    for tokens in (8_700.0, 8_400.0, 8_800.0, 8_450.0):
        run.tokens_per_s = tokens
        run.go(40)
        assert run.last.failure == "throughput-below-baseline"
    assert run.verdicts() == ["initialising", "running", "slow"]
    run.tokens_per_s = 9_900.0
    run.go(60)
    assert run.last.verdict == "running"


def test_an_incident_without_any_process_in_sight_says_why_it_has_no_stacks(captures):
    text = (captures / "autotune-oom-two-of-three-targets.log").read_text()
    run = Timeline(is_ours=False, gaps=UNSEEN, steps_per_s=0.0)
    run.process = "unseen"
    run.hello()
    run.say(text)
    run.go(1)
    run.log_mode = "silent"
    run.go(90)
    assert (run.last.verdict, run.last.failure) == ("stalled", "triton-autotune-oom")
    assert run.last.incident.ready
    assert "no process can be seen" in run.last.incident.stacks_missing
