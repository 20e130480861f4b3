"""Trackers get what the log says, and their trouble is never the run's."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import threading
import time

import pytest
from dflash_train import tracking
from dflash_train.cli import main
from dflash_train.tracking import Tracker, Trackers

DEADLINE_S = 150


class Kept:
    """A backend that keeps what it is given."""

    def __init__(self):
        self.written, self.is_finished = [], False

    def write(self, step, figures):
        self.written.append((step, dict(figures)))

    def finish(self):
        self.is_finished = True


class Broken(Kept):
    """A backend whose service goes away with the second figures."""

    def write(self, step, figures):
        if self.written:
            raise ConnectionError("gone away")
        super().write(step, figures)


class Stuck(Kept):
    """A backend that waits for a network; let go at the end."""

    def __init__(self):
        super().__init__()
        self.let_go = threading.Event()

    def write(self, step, figures):
        self.let_go.wait(DEADLINE_S)


def until(happened):
    end_s = time.monotonic() + DEADLINE_S
    while not happened():
        assert time.monotonic() < end_s, "did not happen in time"
        time.sleep(0.01)


class Events:
    """Takes `tracker` events."""

    def __init__(self):
        self.told = []

    def event(self, kind, **keys):
        self.told.append((kind, keys))


def test_all_figures_arrive_in_order_before_it_ends():
    kept, events = Kept(), Events()
    trackers = Trackers({"kept": lambda: kept}, events)
    for step in range(50):
        trackers.log(step, {"train/loss": step / 2, "train/unknown": None})
    trackers.close()
    assert kept.written == [(step, {"train/loss": step / 2}) for step in range(50)]
    assert kept.is_finished
    assert (trackers.alive(), events.told) == ((), [])


def test_one_that_fails_is_told_once_and_the_other_goes_on(caplog):
    kept, events = Kept(), Events()
    trackers = Trackers({"broken": Broken, "kept": lambda: kept}, events)
    for step in range(20):
        trackers.log(step, {"a": 1.0})
    trackers.close()
    assert len(kept.written) == 20
    error = {"name": "broken", "error": "ConnectionError: gone away"}
    assert events.told == [("tracker", error)]
    assert trackers.alive() == ()


def test_one_that_cannot_begin_is_told_and_takes_nothing():
    def refuse():
        raise OSError("no such host")

    events = Events()
    trackers = Trackers({"far": refuse}, events)
    until(lambda: not trackers.alive())
    trackers.log(1, {"a": 1.0})
    trackers.close()
    assert events.told == [("tracker", {"name": "far", "error": "OSError: no such host"})]


def test_one_that_blocks_is_told_once_never_waited_for_and_left():
    stuck, told = Stuck(), []
    tracker = Tracker("stuck", lambda: stuck, lambda *word: told.append(word), room=3, patience_s=0)
    tracker.log(0, {"a": 1.0})
    until(lambda: tracker._waiting.empty() and tracker._busy_since_s is not None)
    for step in range(1, 10):
        tracker.log(step, {"a": 1.0})
    assert not tracker.close(0.05)
    assert tracker.is_alive
    assert told == [("stuck", "no answer for 0 s; figures wait")]
    stuck.let_go.set()
    until(tracker._waiting.empty)


def test_a_tracker_that_is_not_installed_is_a_usage_error(tmp_path, monkeypatch, capsys):
    real = tracking.importlib.util.find_spec
    monkeypatch.setattr(
        tracking.importlib.util, "find_spec", lambda name: None if name == "wandb" else real(name)
    )
    words = ["--preset", "tiny", "--run-dir", str(tmp_path / "run"), "track.to=wandb"]
    assert main(words) == 64
    assert "track.to: wandb is not installed; pip install" in capsys.readouterr().err
    assert main([*words[:-1], "track.to=mlflow"]) == 64
    assert "none, or some of wandb, tensorboard" in capsys.readouterr().err


@pytest.fixture(scope="module")
def _libraries():
    for name in ("wandb", "tensorboard"):
        pytest.importorskip(name, reason=f"{name} is not installed", exc_type=ImportError)


def history_of(file):
    """Records of a run file of wandb: 7 bytes of head, then (crc, length, type, protobuf)."""
    code = (
        "import sys, json\n"
        "from wandb.proto import wandb_internal_pb2 as pb\n"
        "for line in sys.stdin:\n"
        "    record = pb.Record(); record.ParseFromString(bytes.fromhex(line))\n"
        "    if record.WhichOneof('record_type') == 'history':\n"
        "        items = record.history.item\n"
        "        print(json.dumps({i.key or '/'.join(i.nested_key): json.loads(i.value_json)"
        " for i in items}))\n"
    )
    raw, at, records = file.read_bytes(), 7, []
    while at + 7 <= len(raw):
        _, length, _ = struct.unpack("<IHB", raw[at : at + 7])
        records.append(raw[at + 7 : at + 7 + length].hex())
        at += 7 + length
    lines = subprocess.run(
        [sys.executable, "-c", code],
        input="\n".join(records),
        capture_output=True,
        text=True,
        check=True,
    )
    return [json.loads(line) for line in lines.stdout.splitlines()]


def scalars_of(folder, tag):
    code = (
        "import sys, json\n"
        "from tensorboard.backend.event_processing.event_accumulator import EventAccumulator\n"
        "found = EventAccumulator(sys.argv[1]); found.Reload()\n"
        "print(json.dumps([(e.step, e.value) for e in found.Scalars(sys.argv[2])]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, folder, tag], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


@pytest.mark.usefixtures("_libraries")
def test_wandb_offline_and_tensorboard_hold_the_figures_of_the_log(command, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    process = command.train("track.to=wandb,tensorboard")
    _, err = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, err) == (0, "")
    events = [json.loads(x) for x in (command.run_dir / "events.jsonl").read_text().splitlines()]
    told = [(e["step"], e["loss"]) for e in events if e["kind"] == "throughput"]
    assert len(told) == 4
    (file,) = command.run_dir.glob("wandb/offline-run-*/*.wandb")
    history = history_of(file)
    assert [(one["step"], one["train/loss"]) for one in history] == told
    assert {"train/tokens_per_s", "train/learning_rate", "train/grad_norm"} <= history[0].keys()
    scalars = scalars_of(command.run_dir / "tensorboard", "train/loss")
    assert [step for step, _ in scalars] == [step for step, _ in told]
    assert [value for _, value in scalars] == pytest.approx([loss for _, loss in told], rel=1e-6)
    assert not [event for event in events if event["kind"] == "tracker"]


@pytest.mark.usefixtures("_libraries")
def test_a_service_that_cannot_be_reached_costs_a_warning_and_no_step(command, monkeypatch):
    for name, value in {
        "WANDB_MODE": "online",
        "WANDB_BASE_URL": "http://127.0.0.1:9",  # nobody answers there
        "WANDB_API_KEY": "x" * 40,
        "WANDB_INIT_TIMEOUT": "2",
    }.items():
        monkeypatch.setenv(name, value)
    process = command.train("track.to=wandb")
    out, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0
    assert "training is done: 12 steps" in out
    assert len([line for line in err.splitlines() if "warning: wandb: " in line]) == 1
    events = [json.loads(x) for x in (command.run_dir / "events.jsonl").read_text().splitlines()]
    assert [e["name"] for e in events if e["kind"] == "tracker"] == ["wandb"]
    assert events[-1]["code"] == 0
