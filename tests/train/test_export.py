"""Drafters in both published layouts: written, read back, judged as serving engines read them."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from dflash_train.cli import main
from dflash_train.config import DrafterConfig
from dflash_train.drafter import Drafter, qwen3_config
from dflash_train.errors import CheckpointError
from dflash_train.layouts.geometry import geometry_of, load_config
from dflash_train.layouts.table import table_of
from dflash_train.layouts.weights import read_published, read_tensors
from dflash_train.run import RunRequest, execute
from dflash_train.settings import merge, resolve
from safetensors.torch import load_file, save_file
from train import little_targets
from train.conftest import SMALL
from transformers import AutoConfig, AutoModelForCausalLM


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    """A run of two steps, whose drafter is exported."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    words = ["target.pretrain_steps=1", "optim.steps=2", "data.num_documents=64", "data.rows=2"]
    config = resolve("tiny", None, words)
    assert execute(RunRequest(config=config, run_dir=folder, command=("x",), watch=False)).code == 0
    return folder


def export(run_dir, out, layout="zlab", dtype="float32", *words):
    given = ["--run-dir", str(run_dir), "--format", layout, "--out", str(out), "--dtype", dtype]
    return main(["export", *given, *words])


@pytest.fixture(params=["zlab", "speculators"])
def exported(request, run_dir, tmp_path):
    out = tmp_path / request.param
    assert export(run_dir, out, request.param) == 0
    return out


def change(folder, edit):
    """Change the configuration of an exported folder."""
    file = folder / "config.json"
    config = json.loads(file.read_text())
    edit(config)
    file.write_text(json.dumps(config))


def layers_of(config):
    return config.get("transformer_layer_config", config)


def bad_items(folder):
    return [row.item for row in table_of(folder, None) if row.state == "bad"]


def test_what_was_exported_is_what_is_read(run_dir, exported):
    trained = load_file(run_dir / "checkpoints" / "step-00000002" / "drafter.safetensors")
    found = read_published(exported)
    assert found.weights.keys() == trained.keys()
    assert all(torch.equal(found.weights[name], trained[name]) for name in trained)
    assert found.layout == exported.name
    assert bad_items(exported) == []


def test_both_layouts_say_the_same_geometry_and_it_makes_the_same_drafter(run_dir, tmp_path):
    export(run_dir, tmp_path / "z", "zlab")
    export(run_dir, tmp_path / "s", "speculators")
    zlab, other = read_published(tmp_path / "z").geometry, read_published(tmp_path / "s").geometry
    assert other.num_target_layers is None
    assert zlab.num_target_layers == 4
    same = [name for name in zlab.__slots__ if name != "num_target_layers"]
    assert all(getattr(zlab, name) == getattr(other, name) for name in same)
    config = merge(resolve("tiny", None, []), zlab.settings(), "a drafter")
    assert config.drafter == DrafterConfig()
    module = Drafter(qwen3_config(config.drafter, zlab.hidden_size, zlab.vocab_size), 3)
    module.load_state_dict(read_published(tmp_path / "z").weights)


def test_every_trained_tensor_and_no_other_is_in_the_zlab_folder(run_dir, tmp_path):
    export(run_dir, tmp_path / "z", "zlab", "bfloat16")
    tensors = read_tensors(tmp_path / "z")
    config = resolve("tiny", None, [])
    module = Drafter(qwen3_config(config.drafter, 64, 128), 3)
    assert tensors.keys() == dict(module.named_parameters()).keys()
    assert {tensor.dtype for tensor in tensors.values()} == {torch.bfloat16}


def test_layer_ids_are_outputs_here_and_one_higher_in_speculators(run_dir, tmp_path):
    export(run_dir, tmp_path / "z", "zlab")
    export(run_dir, tmp_path / "s", "speculators")
    zlab, other = load_config(tmp_path / "z"), load_config(tmp_path / "s")
    assert zlab["dflash_config"]["target_layer_ids"] == [0, 1, 2]
    assert other["aux_hidden_state_layer_ids"] == [1, 2, 3]
    assert zlab["block_size"] == zlab["dflash_config"]["block_size"] == other["block_size"] == 8
    assert other["speculators_config"]["proposal_methods"][0]["speculative_tokens"] == 7


def test_transformers_reads_the_geometry_that_was_written(run_dir, tmp_path):
    export(run_dir, tmp_path / "z", "zlab")
    read = AutoConfig.from_pretrained(tmp_path / "z")
    assert (read.model_type, read.head_dim, read.num_key_value_heads) == ("qwen3", 16, 2)
    assert read.rope_parameters == {"rope_type": "default", "rope_theta": 1e7}
    assert (read.sliding_window, read.layer_types[0]) == (64, "sliding_attention")


def test_the_tiny_target_goes_with_the_drafter_and_answers_as_it_did(run_dir, tmp_path):
    export(run_dir, tmp_path / "s", "speculators")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "s" / "target")
    kept = load_file(run_dir / "target.safetensors")
    assert torch.equal(model.model.norm.weight, kept["model.norm.weight"])
    named = load_config(tmp_path / "s")["speculators_config"]["verifier"]
    assert named["name_or_path"] == str(tmp_path / "s" / "target")


def test_a_drafter_goes_from_one_layout_to_the_other_and_back_unchanged(run_dir, tmp_path):
    export(run_dir, tmp_path / "z", "zlab")
    words = ["--dtype", "float32", "--verifier", str(tmp_path / "z" / "target")]
    there = ["export", "--from", str(tmp_path / "z"), "--format", "speculators"]
    assert main([*there, "--out", str(tmp_path / "s"), *words]) == 0
    back = ["export", "--from", str(tmp_path / "s"), "--format", "zlab"]
    assert main([*back, "--out", str(tmp_path / "z2"), "--dtype", "float32"]) == 0
    assert load_config(tmp_path / "z") == load_config(tmp_path / "z2")
    first, last = read_tensors(tmp_path / "z"), read_tensors(tmp_path / "z2")
    assert all(torch.equal(first[name], last[name]) for name in first)


@pytest.mark.parametrize(
    ("item", "edit"),
    [
        ("rope_theta", lambda c: layers_of(c).update(rope_theta=1e4)),
        ("config.json", lambda c: layers_of(c).update(partial_rotary_factor=0.25)),
        ("partial or multi-axis RoPE", lambda c: layers_of(c).update(mrope_section=[2, 3, 3])),
        ("model_type", lambda c: layers_of(c).update(model_type="qwen3_5_text")),
        ("hidden_act", lambda c: layers_of(c).update(hidden_act="gelu")),
        ("sliding_window", lambda c: layers_of(c).update(use_sliding_window=False)),
        ("mask_token_id", lambda c: (c.get("dflash_config") or c).update(mask_token_id=128)),
        ("config.json", lambda c: c.update(architectures=["X"], speculators_model_type="eagle3")),
        ("config.json", lambda c: layers_of(c).update(layer_types=["full_attention"])),
    ],
)
def test_a_field_that_engines_read_otherwise_is_named(exported, item, edit):
    change(exported, edit)
    assert item in bad_items(exported)
    assert main(["export", "--check", str(exported)]) == 1


def test_a_base_in_the_new_place_only_does_not_reach_sglang(run_dir, tmp_path):
    for layout in ("zlab", "speculators"):
        export(run_dir, tmp_path / layout, layout)
        change(tmp_path / layout, lambda c: layers_of(c).pop("rope_theta"))
    assert bad_items(tmp_path / "zlab") == ["rope_theta"]
    assert bad_items(tmp_path / "speculators") == []


def test_an_older_folder_with_the_base_in_the_old_place_only_loads(exported):
    change(exported, lambda c: layers_of(c).pop("rope_parameters"))
    assert bad_items(exported) == []
    assert read_published(exported).geometry.rope_theta == 1e7


def test_block_sizes_that_differ_are_named(run_dir, tmp_path):
    export(run_dir, tmp_path / "z", "zlab")
    change(tmp_path / "z", lambda c: c.update(block_size=16))
    assert bad_items(tmp_path / "z") == ["block_size"]


@pytest.mark.parametrize("key", ["sample_from_anchor", "sliding_window_non_causal"])
def test_what_the_engines_do_not_serve_is_named(run_dir, tmp_path, key):
    export(run_dir, tmp_path / "s", "speculators")
    change(tmp_path / "s", lambda c: c.update({key: True}))
    assert bad_items(tmp_path / "s") == [key]


def test_a_tensor_that_would_be_skipped_silently_is_named(exported):
    tensors = read_tensors(exported)
    tensors["layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(8)
    tensors["layers.0.mlp.up_proj.weight"] = tensors["layers.0.mlp.up_proj.weight"][:5].clone()
    del tensors["hidden_norm.weight"]
    save_file(tensors, exported / "model.safetensors")
    assert bad_items(exported) == [
        "hidden_norm.weight",
        "layers.0.mlp.up_proj.weight",
        "layers.0.self_attn.rotary_emb.inv_freq",
    ]
    with pytest.raises(CheckpointError, match=r"no tensor hidden_norm.weight \(1 missing\)"):
        read_published(exported)


def test_a_drafter_of_another_target_is_named(run_dir, tmp_path, exported):
    shutil.copytree(exported / "target", tmp_path / "other")
    change(tmp_path / "other", lambda c: c.update(max_position_embeddings=4096))
    words = ["export", "--check", str(exported), "--target"]
    assert main([*words, str(exported / "target")]) == 0
    assert main([*words, str(tmp_path / "other")]) == 1


@pytest.mark.parametrize("layout", ["zlab", "speculators"])
def test_the_drafter_of_a_target_from_disk_names_it_and_fits_it(tmp_path, layout):
    target = tmp_path / "target"
    little_targets.save(little_targets.qwen3, target)
    where = ["--run-dir", str(tmp_path / "run"), "--target-devices", "cpux2"]
    words = ["--preset", "tiny", "--no-watch", *SMALL, "optim.steps=2"]
    assert main([*words, "--target", str(target), *where]) == 0
    assert export(tmp_path / "run", tmp_path / "out", layout) == 0
    assert main(["export", "--check", str(tmp_path / "out"), "--target", str(target)]) == 0
    config = load_config(tmp_path / "out")
    assert not (tmp_path / "out" / "target").exists()
    assert layers_of(config)["max_position_embeddings"] == 512
    if layout == "speculators":
        named = config["speculators_config"]["verifier"]
        assert named == {"name_or_path": str(target), "architectures": ["Qwen3ForCausalLM"]}
    mask = config.get("dflash_config", config)
    mask["mask_token_id"] = 2
    (tmp_path / "out" / "config.json").write_text(json.dumps(config))
    assert main(["export", "--check", str(tmp_path / "out"), "--target", str(target)]) == 1


def test_the_check_prints_every_tensor_and_where_features_come_from(exported, capsys):
    assert main(["export", "--check", str(exported)]) == 0
    shown = capsys.readouterr().out
    assert "hidden_states[1], hidden_states[2], hidden_states[3]" in shown
    assert shown.splitlines()[-1] == f"{exported}: all rows load"
    assert all(name in shown for name in read_published(exported).weights)
    assert main(["export", "--check", str(exported), "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {row["state"] for row in rows} <= {"ok", "note"}


def test_a_sharded_folder_is_read_through_its_index(exported):
    tensors = read_tensors(exported)
    names = sorted(tensors)
    half = {name: tensors[name] for name in names[::2]}
    rest = {name: tensors[name] for name in names[1::2]}
    save_file(half, exported / "a.safetensors")
    save_file(rest, exported / "b.safetensors")
    weight_map = {name: f"{'ab'[i % 2]}.safetensors" for i, name in enumerate(names)}
    (exported / "model.safetensors").unlink()
    index = exported / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))
    found = read_published(exported).weights
    assert all(torch.equal(found[name], tensors[name]) for name in tensors)
    (exported / "b.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"b.safetensors: cannot be read"):
        read_published(exported)


def reduce_vocabulary(folder, kept):
    tensors = read_tensors(folder)
    ids = torch.tensor(kept)
    tensors["lm_head.weight"] = torch.randn(len(kept), 64)
    tensors["d2t"] = ids - torch.arange(len(kept))
    tensors["t2d"] = torch.zeros(128, dtype=torch.bool).index_fill(0, ids, True)
    save_file(tensors, folder / "model.safetensors")
    change(folder, lambda c: c.update(draft_vocab_size=len(kept)))
    return tensors


def test_a_reduced_vocabulary_is_read_as_offsets_and_kept_on_the_way(run_dir, tmp_path):
    export(run_dir, tmp_path / "s", "speculators")
    tensors = reduce_vocabulary(tmp_path / "s", [3, 4, 9, 100])
    found = read_published(tmp_path / "s")
    assert found.reduced.kept_R.tolist() == [3, 4, 9, 100]
    words = ["export", "--from", str(tmp_path / "s"), "--format", "speculators"]
    assert main([*words, "--out", str(tmp_path / "t"), "--dtype", "float32"]) == 0
    again = read_tensors(tmp_path / "t")
    assert all(torch.equal(again[name], tensors[name]) for name in tensors)
    assert load_config(tmp_path / "t")["draft_vocab_size"] == 4


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("d2t", torch.tensor([3, 4, 9, 100])),  # ids where offsets belong
        ("d2t", torch.tensor([3, 3, 7])),
        ("d2t", torch.tensor([3, 2, 2, 2])),
        ("t2d", torch.ones(128, dtype=torch.bool)),
    ],
)
def test_a_table_of_tokens_that_is_no_table_of_offsets_is_refused(run_dir, tmp_path, name, broken):
    export(run_dir, tmp_path / "s", "speculators")
    tensors = reduce_vocabulary(tmp_path / "s", [3, 4, 9, 100])
    save_file({**tensors, name: broken}, tmp_path / "s" / "model.safetensors")
    with pytest.raises(CheckpointError, match="d2t"):
        read_published(tmp_path / "s")
    assert bad_items(tmp_path / "s") == ["tensors"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "nothing to export"),
        (["--run-dir", "r"], "--format, --out: missing"),
        (["--run-dir", "r", "--format", "zlab", "--out", "o"], "no whole checkpoint in it"),
        (["--from", "r", "--format", "zlab", "--out", "o"], "config.json: No such file"),
        (["--from", "r", "--format", "zlab", "--out", "."], "exists already"),
        (["--check", "r"], "config.json: No such file"),
        (["--format", "other"], "invalid choice"),
    ],
)
def test_bad_input_is_one_line_and_64(tmp_path, monkeypatch, capsys, words, said):
    monkeypatch.chdir(tmp_path)
    assert main(["export", *words]) == 64
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


def test_a_damaged_checkpoint_is_not_exported(run_dir, tmp_path, capsys):
    copy = tmp_path / "run"
    shutil.copytree(run_dir, copy)
    file = copy / "checkpoints" / "step-00000002" / "drafter.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"\x7f")
    assert export(copy, tmp_path / "out", "zlab", "float32", "--step", "2") == 64
    assert "damaged (sha256" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_geometry_needs_plain_positions(exported):
    config = load_config(exported)
    layers_of(config)["rope_parameters"] = {"full_attention": {"rope_theta": 1.0}}
    with pytest.raises(CheckpointError, match="by layer type"):
        geometry_of(config, "x")
