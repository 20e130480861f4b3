"""What is looked at before a run trains: what is right passes, what is wrong is seen."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from dflash_train import cli, draft
from dflash_train.errors import UsageError
from dflash_train.masks import masks_for
from dflash_train.materials import Materials, make_untaught
from dflash_train.plan import data_checks, drafter_checks, room, target_checks
from dflash_train.plan.bench import Bench, first_rows, make_bench, some_anchors
from dflash_train.plan.check import CHECKS, State, override, passed, table, unknown
from dflash_train.plan.examine import BY_NAME, examine, refuse
from dflash_train.settings import parse_overrides, resolve
from dflash_train.target_facts import read_facts, settle
from dflash_train.target_model import load_target
from dflash_train.targets import FeatureTarget
from train import little_targets
from train.conftest import ROOT, SMALL
from train.made_tokenizers import THINKING, make_tokenizer
from train.test_prepare import write_chats
from transformers import BertConfig, BertLMHeadModel, Qwen3Config, Qwen3ForCausalLM


@pytest.fixture(scope="module")
def bench(tmp_path_factory) -> Bench:
    """A bench of the small run; its parts may be replaced in a copy."""
    config = resolve("tiny", None, SMALL)
    return make_bench(config, tmp_path_factory.mktemp("run"), make_untaught(config))


def other(bench: Bench, *settings: str, **parts) -> Bench:
    """The same materials under other settings."""
    config = parse_overrides(bench.config, settings)
    return dataclasses.replace(bench, config=config, measured={}, **parts)


def bench_of(make, folder: Path, *settings: str, tokens: int = 126) -> Bench:
    """A bench over a target from disk."""
    little_targets.save(make, folder, tokens=tokens)
    config = settle(resolve("tiny", None, [*SMALL, f"target.path={folder}", *settings]))
    source = make_untaught(config).source
    return make_bench(config, folder, Materials(source=source, target=load_target(config.target)))


def test_all_checks_pass_on_the_tiny_run_in_the_promised_order(bench):
    checks = examine(bench)
    assert tuple(check.name for check in checks) == CHECKS == tuple(BY_NAME)
    assert {check.state for check in checks} == {State.OK}
    refuse(checks)
    assert {row["kernel"] for row in bench.measured["kernels"]} == {
        "causal_conv1d_fn",
        "torch_chunk_gated_delta_rule",
    }
    assert all(row["ms"] > 0 and row["calls"] > 0 for row in bench.measured["kernels"])
    assert bench.measured["memory"]["cpu"]["needed_bytes"] > 0


@pytest.mark.parametrize("make", little_targets.DECODERS, ids=lambda make: make.__name__)
def test_no_check_fails_on_a_target_of_any_family(make, tmp_path):
    checks = examine(bench_of(make, tmp_path))
    assert [check.line() for check in checks if check.state is State.FAILED] == []
    doubtful = {check.name for check in checks if check.state is not State.OK}
    assert doubtful == {"agreement"}  # it has learned nothing


def test_features_of_a_neighbouring_layer_are_noticed(bench):
    shifted = other(bench)
    shifted.target = FeatureTarget(bench.materials.decoder, (1, 2, 3), "cpu")
    check = target_checks.feature_index(shifted)
    assert check.state is State.FAILED
    assert "wrong: 0, 1, 2" in check.observed


def test_a_target_that_looks_both_ways_is_noticed(tmp_path):
    def both_ways():
        size = {"hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4}
        names = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
        return BertLMHeadModel(BertConfig(vocab_size=128, intermediate_size=96, **size, **names))

    check = target_checks.causal(bench_of(both_ways, tmp_path))
    assert check.state is State.FAILED
    assert "looks both ways" in check.advice


def test_a_mask_token_that_stands_in_the_data_is_noticed(bench):
    check = data_checks.mask_token(other(bench, "drafter.mask_token_id=50"))
    assert check.state is State.FAILED
    assert check.observed.startswith("50, ")


def test_logits_that_are_capped_are_a_warning(tmp_path):
    check = target_checks.head(bench_of(little_targets.capped, tmp_path))
    assert check.state is State.WARNING
    assert "caps or scales its logits" in check.advice


def test_an_lm_head_of_another_model_is_noticed(bench):
    wrong = make_untaught(bench.config)
    wrong.target.lm_head.weight = torch.nn.Parameter(wrong.target.lm_head.weight.flip(0))
    mixed = dataclasses.replace(bench, materials=wrong)
    real = torch.nn.Linear(64, 128, bias=False)
    wrong.target.forward = lambda **given: type("Out", (), {"logits": real(torch.zeros(1, 16, 64))})
    assert target_checks.head(mixed).state is State.FAILED


def test_buckets_beyond_the_targets_positions_are_noticed(tmp_path):
    check = data_checks.positions(
        bench_of(little_targets.qwen3, tmp_path, "data.buckets=64,600", "data.num_documents=16")
    )
    assert check.state is State.FAILED
    assert "buckets up to 600, the target goes to 512" in check.observed


def test_a_tokenizer_that_ends_text_otherwise_is_a_warning(tmp_path):
    made = bench_of(little_targets.qwen3, tmp_path)
    facts = dataclasses.replace(made.facts, tokenizer_eos=77)
    check = data_checks.tokenizer(dataclasses.replace(made, facts=facts))
    assert check.state is State.WARNING
    assert "tokenizer ends text with 77, model with 2" in check.observed


def test_a_target_without_a_tokenizer_is_not_known_to_fit(tmp_path):
    made = bench_of(little_targets.qwen3, tmp_path)
    facts = dataclasses.replace(made.facts, tokenizer_size=None)
    assert data_checks.tokenizer(dataclasses.replace(made, facts=facts)).state is State.UNKNOWN


def test_chats_prepared_with_another_template_than_the_targets_are_noticed(tmp_path):
    target, chats = tmp_path / "target", tmp_path / "chats.jsonl"
    write_chats(chats, 40)
    made = bench_of(wide, target)
    make_tokenizer(target, THINKING)
    facts = read_facts(str(target))
    other_template = tmp_path / "other.jinja"
    other_template.write_text(THINKING + "{# another #}")
    states, said = [], []
    for name, more in (("own", ()), ("other", ("--chat-template", str(other_template)))):
        words = ["prepare", "--target", str(target), "--data", str(chats), "--thinking", "off"]
        assert cli.main([*words, "--out", str(tmp_path / name), "--workers", "1", *more]) == 0
        data = dataclasses.replace(made.config.data, path=str(tmp_path / name))
        config = dataclasses.replace(made.config, data=data)
        check = data_checks.template(dataclasses.replace(made, config=config, facts=facts))
        states.append(check.state)
        said.append(check.observed)
    assert states == [State.OK, State.FAILED]
    assert all("thinking off" in each for each in said)


def wide():
    return Qwen3ForCausalLM(Qwen3Config(**{**little_targets.SIZE, "vocab_size": 512}))


def test_a_disk_without_room_for_the_checkpoints_is_noticed(bench):
    check = data_checks.disk(other(bench, "checkpoint.keep=1000000000"))
    assert check.state is State.FAILED
    assert "checkpoint.keep=N" in check.advice


def test_checkpoints_that_will_be_replaced_are_not_asked_for_again(bench, tmp_path):
    for step in (10, 20):
        (tmp_path / f"checkpoints/step-{step:08d}").mkdir(parents=True)
    fresh = data_checks.disk(other(bench, "checkpoint.keep=2"))
    resumed = data_checks.disk(other(bench, "checkpoint.keep=2", run_dir=tmp_path))
    assert "3 more checkpoints" in fresh.expected
    assert "1 more checkpoints" in resumed.expected


class OneBatch:
    """A source of one batch."""

    steps_per_epoch = 1

    def __init__(self, batch) -> None:
        self._batch = batch

    def batch(self, index: int):
        return self._batch


@pytest.mark.parametrize("fault", ["two documents", "nothing counts", "beyond the end"])
def test_rows_that_are_not_one_document_are_noticed(bench, fault):
    batch = bench.sample
    if fault == "two documents":
        attention = batch.attention_BT.clone()
        attention[0, 5] = 0
        wrong = dataclasses.replace(batch, attention_BT=attention)
    elif fault == "nothing counts":
        none = torch.zeros(0)
        wrong = dataclasses.replace(batch, rows_R=none.long(), labels_R=none.long(), weights_R=none)
    else:
        attention = torch.zeros_like(batch.attention_BT)
        attention[:, :9] = 1
        wrong = dataclasses.replace(batch, attention_BT=attention)
    materials = dataclasses.replace(bench.materials, source=OneBatch(wrong))
    assert data_checks.documents(dataclasses.replace(bench, materials=materials)).state is (
        State.FAILED
    )


@pytest.mark.parametrize(
    ("chunk", "conv", "is_borne", "state"),
    [
        ("fla.ops.gated_delta_rule.chunk", "causal_conv1d.interface", False, State.OK),
        ("reference", "causal_conv1d.interface", False, State.FAILED),
        ("reference", "reference", True, State.OK),
        ("fla.ops.gated_delta_rule.chunk", "reference", False, State.WARNING),
    ],
)
def test_a_gpu_on_the_reference_is_refused_unless_that_was_asked_for(chunk, conv, is_borne, state):
    rows = [
        {"kernel": "torch_chunk_gated_delta_rule", "bound": chunk, "ms": 2.0},
        {"kernel": "causal_conv1d_fn", "bound": conv, "ms": 0.5},
    ]
    check = target_checks.judge_kernels(rows, 4096, is_borne=is_borne)
    assert check.state is state
    assert f"torch_chunk_gated_delta_rule: {chunk}, 2.00 ms for 4096 tokens" in check.observed
    if state is State.FAILED:
        assert "target.allow_slow_kernels=true" in check.advice


def leaky(kinds, anchors, valid, length, size, window):
    """The mask that lets a block see the target's state at its own anchor."""
    return masks_for(kinds, anchors + 1, valid, length, size, window)


def test_a_mask_that_lets_the_anchor_in_fails_two_checks(bench, monkeypatch):
    monkeypatch.setattr(draft, "masks_for", leaky)
    assert drafter_checks.leak(bench).state is State.FAILED
    assert drafter_checks.cached_inference(bench).state is State.FAILED


def test_training_refuses_a_failed_check_until_it_is_overridden(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(draft, "masks_for", leaky)
    words = ["--preset", "tiny", "--no-watch", *SMALL, "optim.steps=3", "--run-dir"]
    assert cli.main([*words, str(tmp_path / "a")]) == 64
    err = capsys.readouterr().err
    assert "check failed: leak: row 0, anchor" in err
    assert "plan.override=leak,cached-inference" in err
    assert not list((tmp_path / "a").glob("checkpoints/*"))
    again = [*words, str(tmp_path / "b"), "plan.override=leak,cached-inference"]
    assert cli.main(again) == 0
    kept = json.loads((tmp_path / "b" / "run.json").read_text())
    by_name = {check["name"]: check for check in kept["plan"]}
    assert list(by_name) == list(CHECKS)
    assert (by_name["leak"]["state"], by_name["leak"]["overridden"]) == ("failed", True)
    assert not by_name["padding"]["overridden"]
    assert kept["kernels"][0]["bound"] == "reference"
    assert "check overridden: leak" in (tmp_path / "b" / "train.log").read_text()


def test_plan_prints_a_table_or_one_object_and_trains_nothing(tmp_path, capsys):
    words = ["plan", "--preset", "tiny", *SMALL, "--run-dir", str(tmp_path / "run")]
    assert cli.main(words) == 0
    said = capsys.readouterr()
    assert said.out.endswith("training may start\n")
    assert all(f"\n{name} " in f"\n{said.out}" for name in CHECKS)
    assert cli.main([*words, "--json", "drafter.mask_token_id=50"]) == 64
    whole = json.loads(capsys.readouterr().out)
    assert (whole["schema"], whole["ok"]) == (1, False)
    assert [check["name"] for check in whole["checks"] if check["state"] == "failed"] == [
        "mask-token"
    ]
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["plan"], "nothing to train"),
        (["plan", "resume", "--run-dir", "x"], "that run was looked at when it began"),
        (["plan", "--preset", "tiny", "plan.override=leek"], "names of checks"),
        (["plan", "--preset", "tiny", "--drafter-devices", "cuda:97"], "no cuda:97 here"),
    ],
)
def test_a_plan_that_cannot_be_read_is_one_line_and_exit_64(words, said, capsys):
    assert cli.main(words) == 64
    err = capsys.readouterr().err
    assert said in err
    assert len(err.splitlines()) == 1


MANY_SCORES = ("loss.num_anchors=2000", "drafter.num_heads=512")
SCARCE = """
import resource, sys
import torch
from pathlib import Path
from dflash_train.materials import make_untaught
from dflash_train.plan.bench import make_bench
from dflash_train.plan.examine import examine
from dflash_train.settings import resolve
torch.set_num_threads(1)
config = resolve("tiny", None, sys.argv[1:])
bench = make_bench(config, Path("."), make_untaught(config))
bench.replica, bench.target
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + (256 << 20),) * 2)
for check in examine(bench):
    if check.name in ("memory", "time", "leak"):
        print(check.line())
"""


def test_want_of_memory_names_the_bucket_the_amount_and_what_to_change():
    done = subprocess.run(
        [sys.executable, "-c", SCARCE, *SMALL, *MANY_SCORES, "data.buckets=64,96,128"],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(ROOT / "dflash"), "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    memory, duration, leak = done.stdout.splitlines()
    assert "out of memory on cpu: " in memory
    assert "GB more for 1 rows of the bucket 128" in memory
    assert (
        "try data.rows below 2, or data.buckets without 128, or loss.num_anchors below 128"
        in memory
    )
    assert "not looked at: the memory does not suffice" in duration
    assert "not looked at" in leak


def test_what_will_not_fit_is_not_tried(bench, monkeypatch):
    tried: list[int] = []
    real = room._peaks

    def peaks(of, batch):
        tried.append(len(batch.input_ids_BT))
        return real(of, batch)

    monkeypatch.setattr(room, "_peaks", peaks)
    monkeypatch.setattr(room, "available", lambda device: 1000)
    check = room.memory(other(bench))
    assert (check.state, tried) == (State.FAILED, [1])


def test_devices_share_the_work_of_a_step_and_the_busiest_counts(bench):
    many = other(bench, "target.devices=cuda:0,cuda:1", "drafter.devices=cuda:2,cuda:2,cuda:3")
    busy = room._busy(many, 0.3, 0.1)
    assert {name: round(seconds, 3) for name, seconds in busy.items()} == {
        "cuda:0": 0.45,
        "cuda:1": 0.45,
        "cuda:2": 0.2,
        "cuda:3": 0.1,
    }


def test_a_pace_below_what_is_expected_is_a_warning(bench):
    check = room.duration(other(bench, "report.expected_tokens_per_s=1e12"))
    assert check.state is State.WARNING
    assert "1,000,000,000,000 tokens/s" in check.expected


def test_a_part_of_a_batch_is_a_batch(bench):
    batch, size = bench.sample, bench.config.drafter.block_size
    part = some_anchors(first_rows(batch, 1), 3)
    assert part.anchors_BA.shape == (1, 3)
    assert part.live_AK.shape == (3, size)
    assert part.rows_R.tolist() == part.live_AK.flatten().nonzero()[:, 0].tolist()
    at = part.anchors_BA.flatten()[part.rows_R // size] + part.rows_R % size
    assert torch.equal(part.input_ids_BT[0, at], part.labels_R)
    whole = first_rows(batch, len(batch.input_ids_BT))
    assert torch.equal(whole.rows_R, batch.rows_R)


def test_unknown_is_neither_passed_nor_refused_and_only_failures_are_overridden():
    checks = (unknown("leak", "no block", "some"), passed("time", "1 s", "-"))
    assert override(checks, ("leak", "time")) == checks
    refuse(checks)
    shown = table(checks)
    assert "unknown" in shown
    assert "expected: some" in shown


def test_a_check_that_breaks_is_a_failed_check(bench):
    class Broken(OneBatch):
        def batch(self, index: int):
            raise RuntimeError("no such shard")

    materials = dataclasses.replace(bench.materials, source=Broken(None))
    broken = Bench(
        config=bench.config, run_dir=bench.run_dir, materials=materials, facts=bench.facts
    )
    with pytest.raises(UsageError, match="RuntimeError: no such shard"):
        refuse(examine(broken))
