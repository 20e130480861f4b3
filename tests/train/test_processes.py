"""Runs as processes of their own: signals, sudden death, deadlock, closed pipes."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest
import torch
from dflash_events import reader
from dflash_train.run import RunRequest, execute
from safetensors.torch import load_file

DEADLINE_S = 120


def wait_for(happened, process):
    until_s = time.monotonic() + DEADLINE_S
    while not happened():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until_s, "did not happen in time"
        time.sleep(0.05)


def log_has(command, text):
    log = command.run_dir / "train.log"
    return lambda: log.exists() and text in log.read_text()


def last_event(command):
    return json.loads((command.run_dir / "events.jsonl").read_text().splitlines()[-1])


def checkpoints(command):
    return sorted(path.name for path in (command.run_dir / "checkpoints").glob("step-*"))


def beats_of(command):
    beats = reader.open_beats(command.run_dir, reader.read_manifest(command.run_dir).data)
    return {worker["name"]: worker for worker in beats.read()["workers"]}


def test_killed_at_a_step_and_resumed_it_ends_in_the_same_bits(small, command, started, tmp_path):
    held = started(command.train("drill.fault=stop-taking", "drill.at_step=7"))
    wait_for(lambda: checkpoints(command) == ["step-00000005"], held)
    held.kill()
    held.communicate()
    resumed = started(command.resume("drill.fault=none"))
    out, err = resumed.communicate(timeout=DEADLINE_S)
    assert (resumed.returncode, err) == (0, "")
    assert "resuming from" in out
    straight = tmp_path / "straight"
    request = RunRequest(config=small, run_dir=straight, command=("x",), watch=False)
    assert execute(request).code == 0
    name = "checkpoints/step-00000012/drafter.safetensors"
    one, other = load_file(command.run_dir / name), load_file(straight / name)
    assert all(torch.equal(one[key], other[key]) for key in other)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_finishes_the_step_saves_and_exits_75(command, started, number):
    process = started(command.train("optim.steps=100000"))
    wait_for(log_has(command, "step=8/"), process)
    process.send_signal(number)
    out, err = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, err) == (75, "")
    assert f"stopped on request ({number.name}), checkpoint written" in out
    assert f"go on with: dflash-train resume --run-dir {command.run_dir}" in out
    exit_event = last_event(command)
    assert (exit_event["kind"], exit_event["code"], exit_event["reason"]) == ("exit", 75, "stopped")
    assert len(checkpoints(command)) == 2


def test_a_run_that_was_told_to_ignore_a_hangup_survives_it(command, started):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        process = started(command.train())
    finally:
        signal.signal(signal.SIGHUP, before)
    wait_for(log_has(command, "step=1/"), process)
    process.send_signal(signal.SIGHUP)
    process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0


def test_a_signal_while_the_target_is_taught_can_be_resumed_as_well(command, started):
    process = started(command.train("target.pretrain_steps=100000"))
    wait_for(log_has(command, "teaching the target: 1/"), process)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, err) == (75, "")
    assert checkpoints(command) == ["step-00000000"]


def test_each_batch_of_a_long_step_is_progress_and_counted(command, started):
    process = started(command.train("optim.accumulation=3", "optim.steps=2"))
    process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0
    assert {beats_of(command)[name]["items"] for name in ("drafter-0", "drafter-1")} == {6}


def test_a_deadlock_is_visible_and_a_stop_request_says_where_it_stands(command, started):
    process = started(
        command.train("drill.fault=lock-cycle", "drill.at_step=3", "pipeline.stop_grace_s=1")
    )
    wait_for((command.run_dir / "run.json").exists, process)

    def is_deadlocked():
        workers = beats_of(command)
        pair = [workers.get("drafter-0", {}), workers.get("drafter-1", {})]
        return [w.get("wait_object") for w in pair] == [
            "weights-of-drafter-1",
            "weights-of-drafter-0",
        ]

    wait_for(is_deadlocked, process)
    workers = beats_of(command)
    assert workers["drafter-0"]["waits_for"] == "drafter-1"
    assert workers["drafter-1"]["waits_for"] == "drafter-0"
    assert workers["drafter-1"]["wait"] == "lock"
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=DEADLINE_S)
    asked = "stop requested (SIGTERM); waiting up to 1 s for the step to end; a second signal ends"
    assert out.count(asked) == 1
    assert log_has(command, asked)()
    assert process.returncode == 1
    assert "no end of a step within 1 s of SIGTERM" in err.splitlines()[-1]
    assert "_take_weights_of" in (command.run_dir / "stacks.txt").read_text()


def test_a_second_signal_ends_at_once(command, started):
    process = started(
        command.train("drill.fault=stop-taking", "drill.at_step=3", "report.every_steps=1")
    )
    wait_for(log_has(command, "step=3/"), process)
    process.send_signal(signal.SIGTERM)
    wait_for(log_has(command, "a second signal ends at once"), process)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 1
    assert "second signal (SIGTERM): ended at once, nothing saved" in err.splitlines()[-1]


def test_stacks_come_on_a_signal_even_while_the_interpreter_is_held(command, started):
    process = started(command.train("drill.fault=gil-asleep", "drill.at_step=3"))
    wait_for(log_has(command, "step=1/"), process)
    number = json.loads((command.run_dir / "run.json").read_text())["faulthandler_signal"]
    stacks = command.run_dir / "stacks.txt"

    def is_held():
        process.send_signal(number)
        time.sleep(0.2)
        return "_sleep_without_letting_go" in stacks.read_text()

    wait_for(is_held, process)
    process.kill()


def test_threads_carry_the_names_of_their_workers(command, started):
    both = "drill.worker=target-0,target-1"
    process = started(command.train("drill.fault=stop-giving", both, "drill.at_step=4"))
    tasks = Path(f"/proc/{process.pid}/task")
    expected = {"dflash-train", "loader", "target-0", "target-1", "drafter-0", "drafter-1"}

    def name_of(task):
        try:
            return (task / "comm").read_text().strip()
        except OSError:  # a helper thread that ended between the two looks
            return None

    def are_named():
        return expected <= {name_of(task) for task in tasks.iterdir()}

    wait_for(are_named, process)


def test_a_closed_standard_output_does_not_end_a_run(command, started):
    process = started(command.train())
    process.stdout.close()
    process.wait(DEADLINE_S)
    assert process.returncode == 0
    assert last_event(command)["reason"] == "done"
