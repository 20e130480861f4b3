"""Targets of several families from disk: their text part, its states, its tables."""

from __future__ import annotations

import pytest
import torch
from dflash_train.config import TargetConfig
from dflash_train.target_model import (
    decoder_of,
    embedding_of,
    head_of,
    layers_of,
    load_target,
    tables_on,
)
from dflash_train.targets import FeatureTarget
from train import little_targets

EVERY = tuple(range(little_targets.LAYERS))
D = little_targets.HIDDEN


@pytest.fixture(scope="module", params=little_targets.DECODERS, ids=lambda make: make.__name__)
def pair(request, tmp_path_factory):
    """A model as it was saved, and the target read from there."""
    folder = tmp_path_factory.mktemp(request.param.__name__)
    saved = little_targets.save(request.param, folder)
    return saved, load_target(TargetConfig(path=str(folder)))


def some_ids(rows, length, seed=1):
    stream = torch.Generator().manual_seed(seed)
    return torch.randint(5, 120, (rows, length), generator=stream)


def states_of(model, ids):
    with torch.no_grad():
        return model.get_decoder()(
            input_ids=ids, output_hidden_states=True, use_cache=False
        ).hidden_states


def test_feature_i_is_the_saved_models_hidden_state_i_plus_one(pair):
    saved, target = pair
    ids = some_ids(2, 20)
    features = FeatureTarget(decoder_of(target), EVERY, "cpu").features(ids, torch.ones_like(ids))
    states = states_of(saved, ids)
    for i in EVERY[:-1]:
        # float32 of two copies of one model: attention may be computed by another kernel
        assert torch.allclose(features[..., i * D : (i + 1) * D], states[i + 1], atol=1e-5)


def test_the_last_layers_feature_lies_before_the_norm_that_hidden_states_end_with(pair):
    saved, target = pair
    ids = some_ids(1, 12)
    last = FeatureTarget(decoder_of(target), EVERY[-1:], "cpu").features(ids, torch.ones_like(ids))
    listed = states_of(saved, ids)[-1]
    assert not torch.allclose(last, listed, atol=1e-2)
    assert torch.allclose(saved.get_decoder().norm(last), listed, atol=1e-5)


def test_right_padding_changes_no_real_token_of_any_family(pair):
    _, target = pair
    ids = some_ids(1, 24, seed=2)
    padded = torch.nn.functional.pad(ids, (0, 40))
    mask = torch.nn.functional.pad(torch.ones_like(ids), (0, 40))
    feature_target = FeatureTarget(decoder_of(target), EVERY, "cpu")
    alone = feature_target.features(ids, torch.ones_like(ids))
    together = feature_target.features(padded, mask)
    # other lengths are summed in other chunks
    assert torch.allclose(together[:, :24], alone, atol=2e-5)
    assert not together[:, 24:].any()


def test_tables_are_those_of_the_saved_model(pair):
    saved, target = pair
    assert torch.equal(embedding_of(target), saved.get_input_embeddings().weight)
    assert torch.equal(head_of(target), saved.get_output_embeddings().weight)
    assert embedding_of(target).shape == (little_targets.VOCAB, D)
    assert not any(parameter.requires_grad for parameter in target.parameters())


def test_the_last_state_through_the_head_gives_the_models_own_logits(pair):
    saved, target = pair
    ids = some_ids(1, 16)
    with torch.no_grad():
        logits = saved(input_ids=ids, use_cache=False).logits
        last = decoder_of(target)(input_ids=ids, use_cache=False).last_hidden_state
    assert torch.allclose(last @ head_of(target).T, logits, atol=1e-5)


def test_tied_tables_are_moved_once():
    tied, other = torch.ones(4, 2), torch.ones(4, 2)
    one, same = tables_on(tied, tied.detach(), "meta")
    assert one is same
    first, second = tables_on(tied, other, "meta")
    assert first is not second


def test_two_replicas_on_one_device_share_their_weights(pair):
    _, target = pair
    decoder = decoder_of(target)
    first, second = (FeatureTarget(decoder, (1,), "cpu") for _ in range(2))
    weights = [next(layers_of(one._decoder).parameters()) for one in (first, second)]
    assert weights[0].data_ptr() == weights[1].data_ptr()
    ids = some_ids(1, 8)
    mask = torch.ones_like(ids)
    assert torch.equal(first.features(ids, mask), second.features(ids, mask))
    assert not decoder_of(target)._forward_hooks
    assert not any(layer._forward_hooks for layer in layers_of(decoder))


def test_one_cpu_replica_makes_the_whole_target_float32(tmp_path):
    little_targets.qwen3().to(torch.bfloat16).save_pretrained(tmp_path)
    path = str(tmp_path)
    mixed = TargetConfig(path=path, devices=("cuda:0", "cpu"))
    assert embedding_of(load_target(mixed)).dtype == torch.float32
    on_gpus = TargetConfig(path=path, devices=("cuda:0",))
    assert embedding_of(load_target(on_gpus)).dtype == torch.bfloat16
    asked = TargetConfig(path=path, devices=("cpu",), dtype="float16")
    assert embedding_of(load_target(asked)).dtype == torch.float16
