"""Training equals serving, and nothing leaks."""

from __future__ import annotations

import pytest
import torch
from dflash_train import streams
from dflash_train.data import BatchSource
from dflash_train.drafting import ContextCache, draft_block
from dflash_train.leak import leak_test
from dflash_train.masks import masks_for
from dflash_train.materials import make_untaught
from dflash_train.replica import FeatureBatch
from dflash_train.settings import parse_overrides
from dflash_train.workers import build_replica

LAYERS = [
    ("full_attention", "full_attention"),
    ("sliding_attention", "full_attention"),
    ("sliding_attention", "sliding_attention"),
]


def replica_and_item(config, index=0):
    materials = make_untaught(config)
    batch = materials.source.batch(index)
    width = len(config.target.layer_ids) * config.target.hidden_size
    stream = streams.generator(5, "features")
    features = torch.randn(*batch.input_ids_BT.shape, width, generator=stream)
    return build_replica(config, materials, None, "cpu"), FeatureBatch(batch, features), materials


@pytest.mark.parametrize("kinds", LAYERS)
@pytest.mark.parametrize("window", [3, 10, 64])
def test_training_with_the_mask_equals_drafting_with_a_cache(small, kinds, window):
    config = parse_overrides(
        small, [f"drafter.layer_types={','.join(kinds)}", f"drafter.sliding_window={window}"]
    )
    replica, item, materials = replica_and_item(config)
    size, batch = config.drafter.block_size, item.batch
    with torch.no_grad():
        trained = replica.hidden(item).view(*batch.anchors_BA.shape, size, -1)
        for row in range(batch.anchors_BA.shape[0]):
            for a in torch.nonzero(batch.valid_BA[row]).flatten().tolist():
                anchor = int(batch.anchors_BA[row, a])
                cache = ContextCache(replica.drafter)
                half = anchor // 2
                cache.extend(item.features_BTF[row, :half])
                cache.extend(item.features_BTF[row, half:anchor])
                ids = torch.full((size,), config.drafter.mask_token_id)
                ids[0] = batch.input_ids_BT[row, anchor]
                drafted = draft_block(replica.drafter, cache, materials.embedding_VD[ids])
                # two orders of summation in float32
                assert torch.allclose(trained[row, a], drafted, atol=2e-5)


@pytest.mark.parametrize("kinds", LAYERS)
def test_outputs_do_not_move_when_states_at_and_after_the_anchor_change(small, kinds):
    config = parse_overrides(small, [f"drafter.layer_types={','.join(kinds)}"])
    replica, item, _ = replica_and_item(config)
    assert leak_test(replica.hidden, item, config.drafter.block_size) == []


def test_the_leak_test_finds_a_mask_that_lets_the_anchor_in(small):
    replica, item, materials = replica_and_item(small)
    drafter, batch, size = small.drafter, item.batch, small.drafter.block_size

    def leaky(other):
        ids = torch.full((*batch.anchors_BA.shape, size), drafter.mask_token_id)
        positions = (batch.anchors_BA[:, :, None] + torch.arange(size)).flatten(1)
        masks = masks_for(
            drafter.layer_types,
            batch.anchors_BA + 1,
            batch.valid_BA,
            other.features_BTF.shape[1],
            size,
            drafter.sliding_window,
        )
        return replica.drafter(
            other.features_BTF, materials.embedding_VD[ids.flatten(1)], positions, masks
        )

    found = leak_test(leaky, item, size)
    assert len(found) == int(batch.valid_BA.sum())
    assert "output moved" in found[0]


def test_weight_names_are_those_that_serving_engines_load(small):
    replica, _, _ = replica_and_item(small)
    names = set(replica.weights())
    assert {"fc.weight", "hidden_norm.weight", "norm.weight"} <= names
    of_layer = {name.removeprefix("layers.1.") for name in names if name.startswith("layers.1.")}
    assert of_layer == {
        "input_layernorm.weight",
        "post_attention_layernorm.weight",
        *(f"self_attn.{part}_proj.weight" for part in "qkvo"),
        "self_attn.q_norm.weight",
        "self_attn.k_norm.weight",
        *(f"mlp.{part}_proj.weight" for part in ("gate", "up", "down")),
    }


def test_the_anchor_row_never_reaches_the_lm_head(small):
    source: BatchSource = make_untaught(small).source
    for index in range(6):
        assert not (source.batch(index).rows_R % small.drafter.block_size == 0).any()
