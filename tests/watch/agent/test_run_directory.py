"""A run that emits a run directory, seen by the whole agent: manifest, events, beats."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from dflash_watch.agent.find import find_run
from dflash_watch.agent.rundir import paths_of, read_manifest

HERE = Path(__file__).parents[3]
EMITTING = """
import sys, time
from dflash_events import RunWriter
writer = RunWriter(sys.argv[1], total_steps=1000, log_path=sys.argv[1] + "/train.log")
log = open(sys.argv[1] + "/train.log", "w", buffering=1)
with writer:
    worker = writer.worker("target-0", role="target", index=0, device="cpu")
    step = 0
    while step < int(sys.argv[2]):
        step += 1
        worker.beat(step=step, items=step)
        writer.throughput(step=step, tokens_per_s=100.0, loss=1.0)
        print(f"step={step}", file=log)
        time.sleep(0.02)
"""


@pytest.fixture
def emitting(program, tmp_path):
    def start(num_steps: int = 100_000) -> tuple[subprocess.Popen, Path]:
        run_dir = tmp_path / "runs" / "demo"
        run_dir.mkdir(parents=True, exist_ok=True)
        env = {**os.environ, "PYTHONPATH": str(HERE / "dflash")}
        return program(EMITTING, str(run_dir), str(num_steps), env=env), run_dir

    return start


def test_manifest_events_beats_and_log_arrive_together(agent, emitting):
    begun = time.clock_gettime(time.CLOCK_BOOTTIME)
    process, run_dir = emitting()
    run = agent({"run_dir": str(run_dir)})
    first = run.frame(lambda frame: frame["run"]["state"] == "found")
    assert first["run"]["manifest"]["process"]["pid"] == process.pid
    assert first["run"]["how"] == "run-dir"
    frame = run.frame(lambda frame: frame.get("events") and frame.get("beats"))
    assert "manifest" not in frame["run"] or frame["run"]["manifest"]["workers"]
    worker = frame["beats"]["workers"][0]
    assert (worker["name"], worker["role"]) == ("target-0", "target")
    assert 0 <= worker["progress_age_s"] < frame["boot_s"] - begun
    assert "throughput" in {event["kind"] for event in frame["events"]}
    log = next(log for log in frame["logs"] if log["path"] == str(run_dir / "train.log"))
    assert log["path_state"] == "same"
    assert "step=" in log["text"]


def test_what_of_the_tickers_lateness_is_the_machines_comes_with_the_beats(agent, emitting):
    _, run_dir = emitting()
    run = agent({"run_dir": str(run_dir)})

    def waited_s(frame: dict) -> float | None:
        return ((frame.get("beats") or {}).get("ticker") or {}).get("run_delay_s")

    first = run.frame(lambda frame: waited_s(frame) is not None)
    later = run.frame(lambda frame: frame["seq"] > first["seq"] and waited_s(frame) is not None)
    assert 0.0 <= waited_s(first) <= waited_s(later)


def test_no_event_is_lost_or_doubled(agent, emitting):
    _process, run_dir = emitting()
    run = agent({"run_dir": str(run_dir)})
    seqs: list[int] = []
    while len(seqs) < 200:
        seqs += [event["seq"] for event in run.frame().get("events", ())]
    assert seqs == list(range(seqs[0], seqs[0] + len(seqs)))


def test_a_pid_alone_leads_to_its_run_directory(agent, emitting):
    process, run_dir = emitting()
    run = agent({"pid": process.pid})
    run.frame(lambda frame: frame["run"].get("run_dir") == str(run_dir) and frame.get("beats"))


def test_the_newest_run_is_found_by_itself(agent, emitting):
    process, run_dir = emitting()
    run = agent({})
    frame = run.frame(lambda frame: frame["run"]["state"] == "found")
    assert frame["run"]["how"] == "newest"
    assert "has a run directory open" in frame["run"]["note"]
    assert (frame["run"]["run_dir"], frame["run"]["root_pid"]) == (str(run_dir), process.pid)


def test_the_end_of_a_run_is_seen_with_its_last_event(agent, emitting):
    process, run_dir = emitting(60)
    run = agent({"run_dir": str(run_dir)})
    events: list[dict] = []
    while not any(event["kind"] == "exit" for event in events):
        events += run.frame().get("events", ())
    process.wait(60)
    gone = run.frame(lambda frame: frame["run"]["state"] == "gone")
    assert gone["run"]["gone_s"] >= 0
    assert gone["processes"] == []


def test_a_run_directory_that_comes_later_is_found(agent, emitting, tmp_path):
    run = agent({"run_dir": str(tmp_path / "runs" / "demo")})
    assert run.frame()["run"]["state"] == "none"
    emitting()
    run.frame(lambda frame: frame["run"]["state"] == "found" and frame.get("beats"))


def test_the_agent_leaves_no_file_behind(agent, emitting, tmp_path):
    _process, run_dir = emitting()
    empty = tmp_path / "empty"
    empty.mkdir()
    env = {"PATH": os.environ["PATH"], "HOME": str(empty), "TMPDIR": str(empty)}
    run = agent({"run_dir": str(run_dir)}, env=env, python=sys.executable)
    run.frame(lambda frame: frame.get("beats"))
    before = {path.name for path in run_dir.iterdir()}
    assert run.end() == 0
    assert list(empty.iterdir()) == []
    assert {path.name for path in run_dir.iterdir()} == before


@pytest.mark.parametrize(
    "identity",
    [None, [], 7, {}, {"pid": None}, {"pid": "12"}, {"pid": 12.0}, {"pid": True}, {"pid": -1},
     {"pid": 10**30}, {"pid": 12, "start_ticks": -5}, {"pid": 12, "start_ticks": "early"}],
)  # fmt: skip
def test_a_manifest_that_names_no_process_says_nothing_about_its_end(tmp_path, identity):
    (tmp_path / "run.json").write_text(json.dumps({"schema": 1, "process": identity}))
    assert read_manifest(str(tmp_path)) == (
        None, "run.json names no process (process: pid, start_ticks)",
    )  # fmt: skip
    assert "names no process" in find_run("/proc", {"run_dir": str(tmp_path)}, os.getpid())


def test_paths_that_can_be_none_are_passed_over():
    bad = {"log_path": "/tmp/\ud800", "events_path": "a\0b", "beats_path": 7}
    assert paths_of("/runs/a", bad) == {
        "log": None, "events": "/runs/a/events.jsonl", "beats": "/runs/a/beats",
    }  # fmt: skip
