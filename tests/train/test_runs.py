"""Whole runs in this process: repeatable, complete in their directory, never half."""

from __future__ import annotations

import json
import os
import threading

import pytest
import torch
from dflash_events import RunDirError, reader
from dflash_train.errors import DflashError, UsageError
from dflash_train.run import RunRequest, execute
from dflash_train.settings import parse_overrides, resolve
from safetensors.torch import load_file


def train(config, run_dir, *, resume=False):
    return execute(
        RunRequest(
            config=config, run_dir=run_dir, command=("dflash-train",), watch=False, resume=resume
        )
    )


def events_of(run_dir, kind=None):
    lines = (run_dir / "events.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    return [event for event in events if kind in (None, event["kind"])]


def weights_of(run_dir, step):
    return load_file(run_dir / "checkpoints" / f"step-{step:08d}" / "drafter.safetensors")


def assert_equal_weights(one, other):
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.fixture
def done(small, tmp_path):
    run_dir = tmp_path / "done"
    assert train(small, run_dir).code == 0
    return run_dir


def test_two_runs_with_one_seed_end_in_equal_weights(small, done, tmp_path):
    assert train(small, tmp_path / "again").code == 0
    assert_equal_weights(weights_of(done, 12), weights_of(tmp_path / "again", 12))


def test_another_seed_ends_in_other_weights(small, done, tmp_path):
    assert train(parse_overrides(small, ["seed=1"]), tmp_path / "other").code == 0
    other = weights_of(tmp_path / "other", 12)
    assert not torch.equal(weights_of(done, 12)["fc.weight"], other["fc.weight"])


def test_one_target_or_three_make_the_same_weights(small, done, tmp_path):
    config = parse_overrides(small, ["target.devices=cpu,cpu,cpu", "pipeline.queue_capacity=3"])
    assert train(config, tmp_path / "three").code == 0
    assert_equal_weights(weights_of(done, 12), weights_of(tmp_path / "three", 12))


def test_a_run_says_who_works_in_it_and_what_it_is_made_of(small, done):
    manifest = json.loads((done / "run.json").read_text())
    workers = {each["name"]: each for each in manifest["workers"]}
    assert set(workers) == {"main", *small.worker_names()}
    assert len({each["native_tid"] for each in workers.values()}) == len(workers)
    assert workers["target-1"]["role"] == "target"
    assert workers["drafter-1"]["index"] == 1
    assert manifest["total_steps"] == 12
    assert manifest["process"]["pid"] == os.getpid()
    assert manifest["versions"]["torch"] == torch.__version__.partition("+")[0] or (
        manifest["versions"]["torch"] == torch.__version__
    )
    assert any(path.endswith("dflash_train/queue.py") for path in manifest["sources"])
    assert manifest["config"]["optim"]["steps"] == 12
    assert manifest["faulthandler_signal"] == 10
    assert manifest["faulthandler_file"] == str(done / "stacks.txt")


def test_every_phase_that_begins_ends(done):
    open_phases = []
    for event in events_of(done, "phase"):
        key = (event["worker"], event["name"])
        if event["edge"] == "begin":
            open_phases.append(key)
        else:
            open_phases.remove(key)
    assert open_phases == []
    names = {event["name"] for event in events_of(done, "phase")}
    assert names == {"loading", "warm-up", "training", "checkpointing"}


def test_throughput_counts_real_tokens_and_says_where_time_went(small, done):
    events = events_of(done, "throughput")
    assert [event["step"] for event in events] == [1, 4, 8, 12]
    last = events[-1]
    assert last["total_steps"] == 12
    assert last["queue_capacity"] == small.pipeline.queue_capacity
    assert 0.0 <= last["padding_ratio"] < 0.5
    assert last["memory"][0]["device"] == "cpu"
    assert set(last["wait_shares"]) == {"main", *small.worker_names()}
    source_tokens = last["tokens_total"]
    assert 12 * 2 * 2 * small.data.min_length <= source_tokens <= 12 * 2 * 2 * 128


def test_a_run_that_is_done_says_so_last(done):
    last = events_of(done)[-1]
    assert (last["kind"], last["code"], last["reason"]) == ("exit", 0, "done")
    saved = events_of(done, "checkpoint")
    assert [event["step"] for event in saved] == [5, 10, 12]
    assert all(event["error"] is None and event["bytes"] > 0 for event in saved)
    assert "training is done: 12 steps" in (done / "train.log").read_text()


@pytest.mark.parametrize("worker", ["loader", "target-0", "target-1", "drafter-0", "drafter-1"])
def test_one_failing_worker_stops_the_run_and_is_named(small, tmp_path, capsys, worker):
    config = parse_overrides(
        small,
        [
            "drill.fault=raise",
            f"drill.worker={worker}",
            "drill.at_step=6",
            "optim.steps=100000",  # a target takes what the other leaves it
        ],
    )
    result = train(config, tmp_path / "run")
    assert (result.code, result.stuck) == (1, ())
    assert not {thread.name for thread in threading.enumerate()} & set(small.worker_names())
    failed = events_of(tmp_path / "run", "worker-failed")
    assert [(event["worker"], event["exception"]) for event in failed] == [(worker, "DrillError")]
    assert "told to fail" in failed[0]["traceback"]
    lines = capsys.readouterr().err.splitlines()
    cause = f"error: {worker} failed: DrillError: drill: {worker} was told to fail at step 6"
    assert lines[-1].endswith(cause)
    assert "Traceback" not in "".join(lines)
    assert "Traceback" in (tmp_path / "run" / "train.log").read_text()
    last = events_of(tmp_path / "run")[-1]
    assert (last["kind"], last["code"], last["reason"]) == ("exit", 1, "failed")


@pytest.mark.parametrize("worker", ["target-0", "drafter-1"])
def test_a_worker_that_fails_while_warming_up_ends_the_run(small, tmp_path, worker):
    config = parse_overrides(
        small, ["drill.fault=raise", f"drill.worker={worker}", "drill.at_step=-1"]
    )
    assert train(config, tmp_path / "run").code == 1
    assert events_of(tmp_path / "run", "throughput") == []
    assert [e["worker"] for e in events_of(tmp_path / "run", "worker-failed")] == [worker]


def test_when_two_fail_at_once_both_are_told(small, tmp_path):
    config = parse_overrides(
        small, ["drill.fault=raise", "drill.worker=drafter-0,drafter-1", "drill.at_step=6"]
    )
    assert train(config, tmp_path / "run").code == 1
    names = {event["worker"] for event in events_of(tmp_path / "run", "worker-failed")}
    message = events_of(tmp_path / "run")[-1]["message"]
    assert names <= {"drafter-0", "drafter-1"}
    assert all(name in message for name in names)


def test_a_failed_run_without_a_checkpoint_is_begun_anew_and_says_so(small, tmp_path, capsys):
    broken = parse_overrides(
        small, ["drill.fault=raise", "drill.worker=target-0", "drill.at_step=-1"]
    )
    assert train(broken, tmp_path / "run").code == 1
    assert "starts anew" not in capsys.readouterr().out
    assert train(small, tmp_path / "run").code == 0
    told = [line for line in capsys.readouterr().out.splitlines() if "starts anew" in line]
    assert len(told) == 1
    assert "the earlier events are set aside as events-*.jsonl" in told[0]
    assert [path.name for path in (tmp_path / "run").glob("events-*.jsonl")] == ["events-1.jsonl"]


def test_a_failed_run_can_be_resumed_and_ends_as_if_nothing_had_happened(small, done, tmp_path):
    broken = parse_overrides(
        small, ["drill.fault=raise", "drill.worker=target-0,target-1", "drill.at_step=8"]
    )
    assert train(broken, tmp_path / "run").code == 1
    assert train(small, tmp_path / "run", resume=True).code == 0
    assert_equal_weights(weights_of(done, 12), weights_of(tmp_path / "run", 12))


def test_a_mistake_of_ours_is_one_line_and_its_traceback_is_kept(small, tmp_path):
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    with pytest.raises(DflashError, match="traceback in"):
        train(parse_overrides(small, ["target.pretrain_lr=-1"]), run_dir)
    assert "Traceback" in (run_dir / "train.log").read_text()
    assert events_of(run_dir)[-1]["reason"] == "failed"


def test_numbers_that_are_not_finite_are_announced_and_end_the_run_when_they_stay(small, tmp_path):
    config = parse_overrides(small, ["optim.lr=1e30", "optim.max_skipped=6", "optim.steps=40"])
    assert train(config, tmp_path / "run").code == 1
    events = events_of(tmp_path / "run")
    assert {"loss", "grad_norm"} <= {e["what"] for e in events if e["kind"] == "numeric"}
    assert "gradient not finite for" in events[-1]["message"]
    assert "smaller optim.lr" in events[-1]["message"]


def test_a_checkpoint_that_cannot_be_written_does_not_stop_a_run_before_its_end(small, tmp_path):
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    (run_dir / "checkpoints").write_text("in the way")
    assert train(small, run_dir).code == 1
    saved = events_of(run_dir, "checkpoint")
    assert [(e["step"], e["error"]) for e in saved] == [(s, "File exists") for s in (5, 10, 12)]
    assert "last checkpoint not written: File exists" in events_of(run_dir)[-1]["message"]


def test_a_kept_target_that_is_damaged_is_taught_again_to_the_same_bits(small, done, tmp_path):
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    (run_dir / "target.safetensors").write_bytes(b"not a model")
    assert train(small, run_dir).code == 0
    assert "taught again from the seed" in (run_dir / "train.log").read_text()
    assert_equal_weights(weights_of(done, 12), weights_of(run_dir, 12))


def test_a_directory_with_checkpoints_is_not_trained_over(small, done):
    with pytest.raises(UsageError, match="holds checkpoints of an earlier run"):
        train(small, done)


def test_what_a_dead_run_left_is_readable(done):
    manifest = reader.read_manifest(done)
    assert (manifest.data["name"], manifest.notes) == ("done", [])
    with pytest.raises(RunDirError):
        reader.read_manifest(done / "checkpoints")


@pytest.mark.slow
def test_the_tiny_run_learns(tmp_path):
    config = resolve("tiny", None, ["optim.steps=120", "target.pretrain_steps=40"])
    assert train(config, tmp_path / "run").code == 0
    events = events_of(tmp_path / "run", "throughput")
    assert events[0]["loss"] > 4.5
    assert events[-1]["loss"] < 2.5
    assert events[0]["acceptance_length"] < 1.1
    assert events[-1]["acceptance_length"] > 2.5
