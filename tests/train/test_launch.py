"""Several processes: the bits of one, one run directory for whoever looks, one end for all."""

from __future__ import annotations

import json
import os
import signal
import time

import psutil
import pytest
import torch
from dflash_events import reader
from dflash_train.cli import main
from dflash_train.config import Config
from dflash_train.errors import UsageError
from dflash_train.launch import wants_processes
from dflash_train.run import RunRequest, execute
from dflash_train.settings import parse_overrides
from safetensors.torch import load_file
from train.conftest import Command

DEADLINE_S = 150
WEIGHTS = "checkpoints/step-00000012/drafter.safetensors"


def wait_for(happened, process):
    until_s = time.monotonic() + DEADLINE_S
    while not (found := happened()):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until_s, "did not happen in time"
        time.sleep(0.05)
    return found


def events_of(run_dir, kind=None):
    file = run_dir / "events.jsonl"
    lines = file.read_text().splitlines() if file.exists() else []
    return [event for event in map(json.loads, lines) if kind in (None, event["kind"])]


def weights_of(run_dir):
    return load_file(run_dir / WEIGHTS)


def assert_equal_weights(one, other):
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.fixture
def started():
    """Processes that are ended with all their children whatever the test did."""
    processes = []
    yield lambda process: processes.append(process) or process
    for process in processes:
        for one in family(process):
            one.kill()
        process.communicate()


def family(process):
    try:
        top = psutil.Process(process.pid)
        return [*top.children(recursive=True), top]
    except psutil.NoSuchProcess:
        return []


def ranks_of(run_dir):
    """pid of each process that has workers, by run.json; two of them once all have begun."""
    try:
        workers = reader.read_manifest(run_dir).data["workers"]
    except reader.RunDirError:
        return {}
    return {worker["index"]: worker["pid"] for worker in workers if worker["role"] == "drafter"}


def is_over(pid):
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """Two processes, to the end, under torchrun itself."""
    run_dir = tmp_path_factory.mktemp("two") / "run"
    process = Command(run_dir).torchrun()
    _, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, err
    return run_dir


def test_two_processes_end_in_the_bits_of_one_with_twice_the_batches(small, two, tmp_path):
    """Tolerance zero: two numbers have one sum, and both add the second batch to the first."""
    config = parse_overrides(small, ["drafter.devices=cpu", "optim.accumulation=2"])
    request = RunRequest(config=config, run_dir=tmp_path / "one", command=("x",), watch=False)
    assert execute(request).code == 0
    assert_equal_weights(weights_of(two), weights_of(tmp_path / "one"))


def test_two_processes_end_in_the_bits_of_two_threads_and_report_the_same(small, two, tmp_path):
    request = RunRequest(config=small, run_dir=tmp_path / "one", command=("x",), watch=False)
    assert execute(request).code == 0
    assert_equal_weights(weights_of(two), weights_of(tmp_path / "one"))
    keys = ("step", "loss", "grad_norm", "tokens_total", "acceptance_length", "padding_ratio")
    here, there = (events_of(folder, "throughput") for folder in (tmp_path / "one", two))
    assert [[e[k] for k in keys] for e in here] == [[e[k] for k in keys] for e in there]


def test_one_watcher_sees_the_workers_of_both(two):
    manifest = reader.read_manifest(two).data
    assert manifest["launch"]["processes"] == 2
    workers = {worker["name"]: worker for worker in manifest["workers"]}
    names = {"main", "loader", "target-0", "drafter-0"}
    others = {"main-1", "loader-1", "target-1", "drafter-1"}
    assert workers.keys() == names | others
    assert {workers[name]["pid"] for name in names} == {manifest["process"]["pid"]}
    assert len({workers[name]["pid"] for name in others} - {manifest["process"]["pid"]}) == 1
    beats = {w["name"]: w for w in reader.open_beats(two, manifest).read()["workers"]}
    assert beats.keys() == workers.keys()
    assert (beats["drafter-0"]["step"], beats["drafter-1"]["step"]) == (12, 12)
    assert beats["target-1"]["tid"] == workers["target-1"]["native_tid"]
    assert {worker["state"] for worker in beats.values()} == {"ended"}


def test_events_of_both_stand_in_one_file_under_one_count(two):
    events = events_of(two)
    numbers = [event["seq"] for event in events]
    assert numbers == list(range(1, len(numbers) + 1))
    phases = {(e["worker"], e.get("rank", 0)) for e in events_of(two, "phase") if e["worker"]}
    assert {("target-0", 0), ("target-1", 1), ("drafter-0", 0), ("drafter-1", 1)} <= phases
    assert (events[-1]["kind"], events[-1]["code"]) == ("exit", 0)


def test_our_launcher_resumes_what_threads_began(small, command, started, tmp_path):
    begun = parse_overrides(small, ["optim.steps=12", "drill.fault=raise", "drill.at_step=7"])
    request = RunRequest(config=begun, run_dir=command.run_dir, command=("x",), watch=False)
    assert execute(request).code == 1
    resumed = started(command.resume("--launch", "processes", "drill.fault=none"))
    out, err = resumed.communicate(timeout=DEADLINE_S)
    assert (resumed.returncode, err) == (0, "")
    assert "step-00000005" in out
    assert out.count("training is done: 12 steps") == 1
    straight = RunRequest(config=small, run_dir=tmp_path / "one", command=("x",), watch=False)
    assert execute(straight).code == 0
    assert_equal_weights(weights_of(command.run_dir), weights_of(tmp_path / "one"))


def test_a_process_that_fails_ends_all_and_is_named(command, started):
    process = started(
        command.train(
            *("--launch", "processes", "optim.steps=100000", "drill.fault=raise"),
            *("drill.worker=target-1", "drill.at_step=6"),
        )
    )
    _, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 1
    ranks = ranks_of(command.run_dir)
    assert len(ranks) == 2
    assert all(is_over(pid) for pid in ranks.values())
    cause = "target-1 failed: DrillError: drill: target-1 was told to fail at step 6"
    assert cause in err
    assert "Traceback" not in err
    failed = events_of(command.run_dir, "worker-failed")
    assert [(event["worker"], event["rank"]) for event in failed] == [("target-1", 1)]
    last = events_of(command.run_dir)[-1]
    assert (last["kind"], last["code"]) == ("exit", 1)
    assert cause in last["message"]


def test_a_process_that_is_killed_takes_the_other_with_it(command, started):
    process = started(command.train("--launch", "processes", "optim.steps=100000"))
    wait_for(lambda: events_of(command.run_dir, "throughput"), process)
    ranks = ranks_of(command.run_dir)
    os.kill(ranks[1], signal.SIGKILL)
    _, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 1
    assert "rank 1 was ended by SIGKILL" in err
    assert all(is_over(pid) for pid in ranks.values())
    assert events_of(command.run_dir)[-1]["kind"] == "exit"


def test_a_stop_request_reaches_all_and_leaves_a_checkpoint(command, started):
    process = started(command.train("--launch", "processes", "optim.steps=100000"))
    wait_for(lambda: events_of(command.run_dir, "throughput"), process)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, err) == (75, "")
    assert out.count("stopped on request (SIGTERM), checkpoint written") == 1
    assert events_of(command.run_dir)[-1]["code"] == 75
    assert list((command.run_dir / "checkpoints").glob("step-*"))


def test_nothing_is_left_when_the_launcher_is_killed(command, started):
    process = started(command.train("--launch", "processes", "optim.steps=100000"))
    wait_for(lambda: events_of(command.run_dir, "throughput"), process)
    ranks = ranks_of(command.run_dir)
    process.kill()
    process.communicate()
    until_s = time.monotonic() + DEADLINE_S
    while not all(is_over(pid) for pid in ranks.values()):
        assert time.monotonic() < until_s, "orphans"
        time.sleep(0.1)


@pytest.mark.parametrize(
    ("words", "environ", "said"),
    [
        (["drafter.devices=cpu,cpu,cpu"], {}, "target.devices: 2 for 3 processes"),
        (["drill.fault=lock-cycle"], {}, "lock-cycle needs two drafters in one process"),
        ([], {"WORLD_SIZE": "3", "RANK": "0"}, "3 processes for 2 drafters"),
        ([], {"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}, "all must run on one machine"),
    ],
)
def test_processes_that_do_not_fit_are_refused(tmp_path, monkeypatch, capsys, words, environ, said):
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    run_dir = ["--run-dir", str(tmp_path / "run"), "--launch", "processes"]
    assert main(["--preset", "tiny", *run_dir, *words]) == 64
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
    assert not (tmp_path / "run").exists()


CARDS = ["target.devices=cuda:0,cuda:1"]


@pytest.mark.parametrize(
    ("drafters", "launch", "expected"),
    [
        ("cuda:0,cuda:1", "auto", True),
        ("cuda:0,cuda:0", "auto", False),
        ("cuda:0,cuda:0", "threads", False),
        ("cuda:0,cpu", "auto", False),
        ("cpu,cpu", "auto", False),
        ("cpu,cpu", "processes", True),
        ("cuda:0", "processes", False),
    ],
)
def test_drafters_get_a_process_each_where_each_has_a_gpu(drafters, launch, expected):
    config = parse_overrides(Config(), [*CARDS, f"drafter.devices={drafters}"])
    assert wants_processes(launch, config, {}) is expected


def test_processes_that_would_share_a_gpu_are_refused():
    config = parse_overrides(Config(), [*CARDS, "drafter.devices=cuda:0,cuda:0"])
    with pytest.raises(UsageError, match="several drafters on cuda:0, expected a GPU for each"):
        wants_processes("processes", config, {})
