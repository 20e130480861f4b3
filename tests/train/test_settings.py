"""Preset, file and command line to one configuration; bad keys and values are one clear line."""

from __future__ import annotations

import json

import pytest
from dflash_train.config import Config
from dflash_train.errors import UsageError
from dflash_train.settings import as_mapping, from_mapping, resolve


def test_the_command_line_wins_over_the_file_and_the_file_over_the_preset(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text("seed = 4\n[optim]\nsteps = 50\nlr = 0.01\n")
    config = resolve("tiny", file, ["optim.steps=70"])
    assert (config.seed, config.optim.steps, config.optim.lr) == (4, 70, 0.01)
    assert config.data == Config().data


def test_values_have_the_type_of_their_field():
    config = resolve(
        "tiny",
        None,
        [
            "data.buckets=64,128",
            "optim.lr=1e-4",
            "drill.fault=none",
            "report.expected_tokens_per_s=14200",
            "drill.worker=drafter-0,target-1",
        ],
    )
    assert config.data.buckets == (64, 128)
    assert config.optim.lr == 1e-4
    assert config.drill.fault is None
    assert config.report.expected_tokens_per_s == 14200.0
    assert config.drill.worker == ("drafter-0", "target-1")


def test_a_configuration_survives_json():
    config = resolve("tiny", None, ["optim.steps=3", "target.devices=cpu"])
    assert from_mapping(json.loads(json.dumps(as_mapping(config)))) == config


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["optim.stps=3"], "optim.stps: unknown key (command line); did you mean steps?"),
        (["optin.steps=3"], "optin: unknown key (command line); did you mean optim?"),
        (["optim.steps=many"], "optim.steps: got 'many', expected a whole number"),
        (["optim.steps=0"], "optim.steps: got 0, expected 1 or more"),
        (["optim=3"], "optim: is a section"),
        (["optim.steps"], "expected section.key=value"),
        (["data.buckets=96,64"], "data.buckets: got (96, 64), expected lengths"),
        (["data.min_length=9"], "data.min_length: got 9, expected a block and a prompt (24)"),
        (["drafter.mask_token_id=0"], "expected a token below 128 that is not pad"),
        (["target.layer_ids=0,9"], "target.layer_ids: got (0, 9), expected layers of the target"),
        (["pipeline.queue_capacity=1"], "expected one batch for each of the 2 drafters"),
        (["drafter.layer_types=full_attention"], "expected 2 of full_attention"),
        (["drafter.sliding_window=7"], "sliding_window: got 7, expected a block (8) or more"),
        (["loss.decay=0"], "loss.decay: got 0.0, expected above 0, or none"),
        (["loss.weighting=pace"], "loss.weighting: got 'pace', expected one of decay, dpace"),
        (["loss.pace_floor=0"], "loss.pace_floor: got 0.0, expected above 0"),
        (["optim.compute_dtype=half"], "optim.compute_dtype: got 'half', expected one of auto"),
        (["drill.fault=rais"], "drill.fault: got 'rais', expected one of raise, lock-cycle"),
        (["drill.fault=raise", "drill.worker=target-7"], "expected one of loader, target-0"),
    ],
)
def test_bad_settings_name_the_key_and_what_is_expected(words, said):
    with pytest.raises(UsageError) as caught:
        resolve("tiny", None, words)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [("[optim\n", "not TOML"), ("[optim]\nsteps = true\n", "optim.steps: got True")],
)
def test_a_bad_file_is_named(tmp_path, text, said):
    file = tmp_path / "run.toml"
    file.write_text(text)
    with pytest.raises(UsageError, match=said):
        resolve("tiny", file, [])


def test_a_missing_file_and_an_unknown_preset_are_named(tmp_path):
    with pytest.raises(UsageError, match="No such file"):
        resolve("tiny", tmp_path / "no.toml", [])
    with pytest.raises(UsageError, match="unknown; did you mean tiny"):
        resolve("tinny", None, [])
