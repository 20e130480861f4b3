"""Run directories of trainers that are not ours, written by those trainers themselves."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from dflash_events.adapters.context import watched_run
from dflash_events.reader import EventTail, open_beats, read_manifest

ROOT = Path(__file__).parents[2]


def events_of(run):
    with EventTail(run / "events.jsonl") as tail:
        return tail.read(2**24).events


def phases(events):
    return [(event["name"], event["edge"]) for event in events if event["kind"] == "phase"]


def run_program(text, tmp_path, code=0):
    """Run a training program of its own, as its user would."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", text, tmp_path],
        capture_output=True,
        text=True,
        check=False,
        env={
            **os.environ,
            "PYTHONPATH": f"{ROOT / 'dflash'}:{os.environ.get('PYTHONPATH', '')}",
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
        },
    )
    assert done.returncode == code, done.stderr
    return done


def test_two_lines_make_any_loop_watched(tmp_path):
    asked = []

    def loss():
        asked.append(1)
        return 2.5

    with watched_run(tmp_path, total_steps=3, device="cpu", report_s=0) as loop:
        for step in range(3):
            loop.step(step, tokens=100, loss=loss)
        with loop.phase("checkpointing", budget_s=60):
            pass
    events = events_of(tmp_path)
    assert phases(events) == [
        ("loading", "begin"),
        ("loading", "end"),
        ("training", "begin"),
        ("checkpointing", "begin"),
        ("checkpointing", "end"),
        ("training", "end"),
    ]
    figures = [event for event in events if event["kind"] == "throughput"]
    assert [event["step"] for event in figures] == [0, 1, 2]
    assert figures[-1]["tokens_total"] == 300
    assert figures[-1]["tokens_per_s"] > 0
    assert figures[-1]["loss"] == 2.5
    assert events[-1]["reason"] == "done"
    with open_beats(tmp_path, read_manifest(tmp_path).data) as beats:
        (worker,) = beats.read()["workers"]
    assert (worker["name"], worker["step"], worker["state"]) == ("main", 2, "ended")


def test_a_loop_that_takes_a_signal_declares_it_and_answers_it_with_its_stacks(tmp_path):
    number = signal.SIGRTMIN + 6
    with watched_run(tmp_path, stack_signal=number):
        manifest = read_manifest(tmp_path).data
        os.kill(os.getpid(), number)
    assert manifest["faulthandler_signal"] == number
    assert manifest["faulthandler_file"] == str(tmp_path / "stacks.txt")
    told = (tmp_path / "stacks.txt").read_text()
    assert "(most recent call first):" in told
    os.kill(os.getpid(), number)  # disarmed: ignored, not deadly
    assert (tmp_path / "stacks.txt").read_text() == told


def test_a_signal_that_cannot_be_handled_is_refused_before_the_run_begins(tmp_path):
    refused = pytest.raises(ValueError, match=f"signal {int(signal.SIGKILL)}")
    with refused, watched_run(tmp_path, stack_signal=signal.SIGKILL):
        pass
    assert not (tmp_path / "run.json").exists()


def test_a_loss_on_a_device_is_asked_for_only_when_a_report_is_due(tmp_path):
    def loss():
        raise AssertionError("asked between two reports")

    with watched_run(tmp_path, report_s=3600) as loop:
        for step in range(10):
            loop.step(step, loss=loss)
    assert not [event for event in events_of(tmp_path) if event["kind"] == "throughput"]


def test_an_exception_in_the_loop_is_in_the_exit_event(tmp_path):
    def train():
        with watched_run(tmp_path) as loop:
            loop.step(1)
            raise ValueError("shapes differ")

    with pytest.raises(ValueError, match="shapes differ"):
        train()
    last = events_of(tmp_path)[-1]
    assert (last["reason"], last["message"]) == ("failed", "ValueError: shapes differ")


HUGGING_FACE = """
import sys, torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments
from dflash_events.adapters.huggingface import RunDirectoryCallback
torch.set_num_threads(1)
model = LlamaForCausalLM(LlamaConfig(vocab_size=32, hidden_size=16, intermediate_size=32,
    num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=16))
rows = [{"input_ids": torch.arange(8) % 32, "labels": torch.arange(8) % 32} for _ in range(16)]
class Rows(torch.utils.data.Dataset):
    def __len__(self): return len(rows)
    def __getitem__(self, index):
        if FAIL and index == 9: raise ValueError("row 9 is broken")
        return rows[index]
args = TrainingArguments(output_dir=sys.argv[1], max_steps=6, per_device_train_batch_size=4,
    logging_steps=2, save_steps=3, eval_strategy="steps", eval_steps=3, report_to=[], use_cpu=True,
    include_num_input_tokens_seen=True, disable_tqdm=True, dataloader_pin_memory=False)
Trainer(model=model, args=args, train_dataset=Rows(), eval_dataset=rows[:4],
        callbacks=[RunDirectoryCallback(stack_signal=40)]).train()
"""


def test_a_real_hugging_face_trainer_writes_a_run_directory(tmp_path):
    pytest.importorskip("accelerate", reason="transformers.Trainer needs accelerate")
    run_program("FAIL = False\n" + HUGGING_FACE, tmp_path)
    manifest = read_manifest(tmp_path).data
    events = events_of(tmp_path)
    assert manifest["total_steps"] == 6
    assert manifest["config"]["max_steps"] == 6
    assert set(manifest["versions"]) == {"python", "torch", "transformers"}
    figures = [event for event in events if event["kind"] == "throughput"]
    assert [event["step"] for event in figures if event["loss"] is not None] == [2, 4, 6]
    assert figures[0]["tokens_total"] == 2 * 4 * 8
    assert phases(events) == [
        ("loading", "begin"),
        ("loading", "end"),
        ("training", "begin"),
        *[("evaluating", "begin"), ("evaluating", "end")] * 2,
        ("training", "end"),
    ]
    saved = [event for event in events if event["kind"] == "checkpoint"]
    assert [event["step"] for event in saved] == [3, 6]
    assert Path(saved[0]["path"]).is_dir()
    assert (events[-1]["kind"], events[-1]["reason"]) == ("exit", "done")


def test_a_hugging_face_trainer_that_fails_says_so_at_the_end(tmp_path):
    pytest.importorskip("accelerate", reason="transformers.Trainer needs accelerate")
    run_program("FAIL = True\n" + HUGGING_FACE, tmp_path, code=1)
    last = events_of(tmp_path)[-1]
    assert (last["reason"], last["message"]) == ("failed", "ValueError: row 9 is broken")


LIGHTNING = """
import sys, torch
import lightning.pytorch as pl
from dflash_events.adapters.lightning import RunDirectoryCallback
torch.set_num_threads(1)
class Tiny(pl.LightningModule):
    def __init__(self, width=4):
        super().__init__()
        self.save_hyperparameters()
        self.layer = torch.nn.Linear(width, 1)
    def training_step(self, batch, index):
        if FAIL and index == 2: raise ValueError("batch 2 is broken")
        return self.layer(batch).pow(2).mean()
    def validation_step(self, batch, index): pass
    def configure_optimizers(self): return torch.optim.SGD(self.parameters(), 0.1)
rows = torch.utils.data.DataLoader(torch.randn(8, 4), batch_size=2)
pl.Trainer(default_root_dir=sys.argv[1], max_epochs=2, accelerator="cpu", logger=False,
    enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False,
    num_sanity_val_steps=0,
    callbacks=[RunDirectoryCallback(report_s=0, stack_signal=40)]).fit(Tiny(), rows, rows)
"""


def test_a_real_lightning_trainer_writes_a_run_directory(tmp_path):
    pytest.importorskip("lightning", reason="lightning is not part of our environment")
    run_program("FAIL = False\n" + LIGHTNING, tmp_path)
    manifest, events = read_manifest(tmp_path).data, events_of(tmp_path)
    assert manifest["total_steps"] == 8
    assert manifest["config"] == {"width": 4}
    figures = [event for event in events if event["kind"] == "throughput"]
    assert [event["step"] for event in figures] == list(range(1, 9))
    assert all(event["loss"] is not None for event in figures)
    assert phases(events).count(("evaluating", "end")) == 2
    assert (events[-1]["kind"], events[-1]["reason"]) == ("exit", "done")


def test_a_lightning_trainer_that_fails_says_so(tmp_path):
    pytest.importorskip("lightning", reason="lightning is not part of our environment")
    run_program("FAIL = True\n" + LIGHTNING, tmp_path, code=1)
    events = events_of(tmp_path)
    failed = next(event for event in events if event["kind"] == "worker-failed")
    assert (failed["exception"], failed["message"]) == ("ValueError", "batch 2 is broken")
    assert (events[-1]["code"], events[-1]["reason"]) == (1, "failed")
