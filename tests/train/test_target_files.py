"""A target that is none, is damaged, or belongs to something else: one line says which."""

from __future__ import annotations

import json
import shutil

import pytest
from dflash_train.device_names import expand
from dflash_train.errors import UsageError
from dflash_train.settings import resolve
from dflash_train.target_facts import feature_layers, read_facts, settle
from dflash_train.target_files import check_whole, find_target, fingerprint
from dflash_train.target_model import load_target
from train import little_targets
from transformers import BertConfig, BertModel


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved") / "model"
    little_targets.save(little_targets.qwen3, folder)
    return folder


@pytest.fixture
def folder(saved, tmp_path):
    """A copy that may be damaged."""
    return shutil.copytree(saved, tmp_path / "model")


def refused(path):
    with pytest.raises(UsageError) as caught:
        read_facts(str(path))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_folder_that_is_no_model_is_refused(tmp_path):
    assert "no config.json in it" in refused(tmp_path)
    assert "no such folder" in refused(tmp_path / "nowhere")
    (tmp_path / "config.json").write_text("{}")
    assert "no model.safetensors" in refused(tmp_path)


def test_weights_in_the_old_pickle_format_only_are_refused_with_the_way_out(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    said = refused(folder)
    assert "pytorch_model.bin only" in said
    assert "save_pretrained" in said


def test_an_index_with_missing_parts_names_them(tmp_path):
    little_targets.save(little_targets.llama, tmp_path, max_shard_size="100KB")
    parts = sorted(tmp_path.glob("model-*.safetensors"))
    assert len(parts) > 2
    check_whole(tmp_path)
    parts[1].unlink()
    assert f"1 of {len(parts)} weight files missing: {parts[1].name}" in refused(tmp_path)


def test_an_index_that_is_no_json_is_refused(tmp_path):
    little_targets.save(little_targets.llama, tmp_path, max_shard_size="100KB")
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": ')
    assert "cannot be read" in refused(tmp_path)


def test_a_weight_file_cut_short_is_refused(folder):
    file = folder / "model.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[:-100])
    assert f"{len(whole) - 100} bytes, expected {len(whole)}: cut short?" in refused(folder)
    file.write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    assert "not a safetensors file" in refused(folder)


def test_models_that_are_no_decoders_are_refused(tmp_path):
    little_targets.save(little_targets.encoder_decoder, tmp_path / "t5")
    assert "t5 is an encoder-decoder model" in refused(tmp_path / "t5")
    vision = little_targets.llava_wrapper().config.vision_config
    little_targets.save(little_targets.qwen3, tmp_path / "clip")
    vision.save_pretrained(tmp_path / "clip")
    assert "no language model with a decoder" in refused(tmp_path / "clip")


def test_a_family_that_transformers_does_not_know_is_refused(folder):
    settings = json.loads((folder / "config.json").read_text())
    settings["model_type"] = "from_tomorrow"
    (folder / "config.json").write_text(json.dumps(settings))
    said = refused(folder)
    assert "from_tomorrow" in said
    assert "code that comes with a model is not run" in said


def test_a_tokenizer_of_another_model_is_refused(folder):
    little_targets.save_tokenizer(folder, 140)
    assert "its tokenizer gives ids up to 139, its embedding has 128 rows" in refused(folder)


def test_a_tokenizer_that_cannot_be_read_is_refused(folder):
    (folder / "tokenizer.json").write_text("{")
    assert "its tokenizer cannot be read" in refused(folder)


def test_facts_of_a_wrapper_are_those_of_its_text_part(tmp_path):
    little_targets.save(little_targets.hybrid_wrapper, tmp_path)
    facts = read_facts(str(tmp_path))
    assert facts.is_wrapper
    assert (facts.model_type, facts.hidden_size, facts.num_layers) == ("qwen3_5_text", 64, 4)
    assert (facts.vocab_size, facts.special_ids, facts.tokenizer_size) == (128, (0, 1, 2), 126)


@pytest.mark.parametrize(
    ("layers", "features", "expected"),
    [
        (36, 5, (1, 9, 17, 25, 33)),
        (32, 5, (1, 8, 15, 22, 29)),
        (32, 1, (16,)),
        (6, 5, (1, 2, 3)),
        (4, 5, (2,)),
    ],
)
def test_default_layers_follow_the_published_formula(layers, features, expected):
    assert feature_layers(layers, features) == expected


def settled(folder, *overrides, preset="tiny"):
    return settle(resolve(preset, None, [f"target.path={folder}", *overrides]))


def test_a_target_decides_geometry_layers_and_mask_token(saved):
    config = settled(saved, preset="dflash")
    assert (config.target.num_layers, config.target.hidden_size) == (4, 64)
    assert config.target.layer_ids == (2,)
    assert (config.data.vocab_size, config.drafter.intermediate_size) == (128, 96)
    assert config.drafter.mask_token_id == 126  # the first row no token uses
    assert config.target.fingerprint == fingerprint(saved)


def test_the_tokenizers_own_mask_token_comes_first(folder):
    little_targets.save_tokenizer(folder, 126, mask_token="w40")
    assert settled(folder, "drafter.mask_token_id=-1").drafter.mask_token_id == 43
    assert settled(folder, "drafter.mask_token_id=77").drafter.mask_token_id == 77


def test_no_mask_token_to_be_found_is_said(folder):
    little_targets.save_tokenizer(folder, 128)
    with pytest.raises(UsageError, match="give the id of a token that never stands in text"):
        settled(folder, "drafter.mask_token_id=-1")


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("drafter.mask_token_id=0", "not pad, start or end"),
        ("drafter.mask_token_id=2", "not pad, start or end"),
        ("drafter.mask_token_id=128", "a token below 128"),
        ("target.layer_ids=1,4", "layers of the target in rising order, 0 to 3"),
        ("target.layer_ids=2,1", "in rising order"),
        ("target.dtype=int8", "one of auto, float32"),
    ],
)
def test_settings_that_do_not_fit_the_target_are_refused(saved, override, said):
    with pytest.raises(UsageError, match=said):
        settled(saved, override)


def test_the_fingerprint_tells_weights_apart_and_stands_for_one_model(saved, folder):
    assert fingerprint(folder) == fingerprint(saved)
    file = folder / "model.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(bytes(data))
    assert fingerprint(folder) != fingerprint(saved)


def test_a_target_that_changed_since_the_run_began_is_refused(folder):
    config = settled(folder)
    assert settle(config) == config
    settings = json.loads((folder / "config.json").read_text())
    settings["rope_theta"] = 5e5
    (folder / "config.json").write_text(json.dumps(settings))
    with pytest.raises(UsageError, match="configuration or weights have changed"):
        settle(config)


def test_a_hub_id_is_read_from_the_hubs_cache(saved, tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(UsageError, match="neither a folder here nor fetched from the hub"):
        find_target("some/model")
    place = tmp_path / "models--some--model"
    shutil.copytree(saved, place / "snapshots" / "abc")
    (place / "refs").mkdir()
    (place / "refs" / "main").write_text("abc")
    assert find_target("some/model") == place / "snapshots" / "abc"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("cpu,cpu", ("cpu", "cpu")),
        ("cuda:0-2,cuda:5", ("cuda:0", "cuda:1", "cuda:2", "cuda:5")),
        ("cuda", ("cuda:0",)),
        ("cpux3", ("cpu", "cpu", "cpu")),
    ],
)
def test_lists_of_devices_are_expanded(text, names):
    assert expand(text, "--target-devices") == names


@pytest.mark.parametrize("text", ["", "gpu:0", "cuda:3-1", "cpu:1", "cuda:a", "cpux0", "cuda:0-"])
def test_lists_that_name_no_device_are_refused(text):
    with pytest.raises(UsageError, match="--target-devices"):
        expand(text, "--target-devices")


def test_an_encoder_of_two_directions_is_refused_when_its_head_is_missing(tmp_path):
    size = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    little_targets.save_tokenizer(tmp_path, 126)
    BertModel(BertConfig(vocab_size=128, intermediate_size=32, **size)).save_pretrained(tmp_path)
    config = resolve("tiny", None, [f"target.path={tmp_path}"]).target
    with pytest.raises(UsageError, match="weights missing"):
        load_target(config)
