"""Two drafters make the step that one would make with their batches together."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from dflash_train import streams
from dflash_train.averaging import Parcel
from dflash_train.materials import make_untaught
from dflash_train.metrics import FIELDS
from dflash_train.replica import FeatureBatch
from dflash_train.schedule import learning_rate
from dflash_train.settings import parse_overrides
from dflash_train.workers import build_replica

WEIGHT = FIELDS.index("weight")


def items_of(config, count):
    source = make_untaught(config).source
    width = len(config.target.layer_ids) * config.target.hidden_size
    items = []
    for index in range(count):
        batch = source.batch(index)
        stream = streams.generator(9, "features", index)
        features = torch.randn(*batch.input_ids_BT.shape, width, generator=stream)
        items.append(FeatureBatch(batch, features))
    return items


def parcel_of(replica, items, step=0):
    gradient = replica.flat.begin_step(step)
    sums = sum(replica.accumulate(item) for item in items)
    return Parcel(gradient=gradient, sums=sums, num_tokens=0, num_padded=0)


def fresh(config):
    return build_replica(config, make_untaught(config), None, "cpu")


def test_two_drafters_equal_one_that_accumulates(small):
    one, two = items_of(small, 2)
    alone, first, second = fresh(small), fresh(small), fresh(small)
    alone.apply((parcel_of(alone, [one, two]),), 0)
    parcels = (parcel_of(first, [one]), parcel_of(second, [two]))
    first.apply(parcels, 0)
    second.apply(parcels, 0)
    assert torch.equal(first.flat.weights, second.flat.weights)
    # sums in another order: float32, and AdamW's first step is about lr whatever the gradient
    assert torch.allclose(alone.flat.weights, first.flat.weights, atol=1e-6)


def joined(one, two):
    """Two batches of one length as a single one of twice as many rows."""
    first, second = one.batch, two.batch
    both = {
        name: torch.cat([getattr(first, name), getattr(second, name)])
        for name in ("input_ids_BT", "attention_BT", "anchors_BA", "valid_BA", "live_AK")
    }
    rows = torch.cat([first.rows_R, second.rows_R + first.live_AK.numel()])
    labels = torch.cat([first.labels_R, second.labels_R])
    weights = torch.cat([first.weights_R, second.weights_R])
    batch = replace(first, **both, rows_R=rows, labels_R=labels, weights_R=weights)
    return FeatureBatch(batch, torch.cat([one.features_BTF, two.features_BTF]))


@pytest.mark.parametrize("weighting", ["decay", "dpace", "uniform"])
def test_accumulated_batches_make_the_step_of_one_big_batch(small, weighting):
    config = parse_overrides(small, [f"loss.weighting={weighting}"])
    one, two = items_of(config, 2)
    parts, whole = fresh(config), fresh(config)
    parcel, big = parcel_of(parts, [one, two]), parcel_of(whole, [joined(one, two)])
    # the same sums in another order, float32
    assert torch.allclose(parcel.gradient, big.gradient, rtol=1e-4, atol=1e-4)
    assert torch.allclose(parcel.sums, big.sums, rtol=1e-5)
    parts.apply((parcel,), 0)
    whole.apply((big,), 0)
    # AdamW's first step is about lr wherever a gradient is not zero to the last bit
    assert (parts.flat.weights - whole.flat.weights).abs().mean() < 1e-6


@pytest.mark.parametrize("kinds", ["sliding_attention,full_attention", "full_attention"])
def test_layers_computed_again_in_backward_give_the_same_bits(small, kinds):
    words = [f"drafter.layer_types={kinds}", f"drafter.num_layers={kinds.count('_')}"]
    config = parse_overrides(small, words)
    items = items_of(config, 1)
    kept = parcel_of(fresh(config), items)
    again = fresh(parse_overrides(config, ["optim.gradient_checkpointing=true"]))
    parcel = parcel_of(again, items)
    assert torch.equal(kept.gradient, parcel.gradient)
    assert torch.equal(kept.sums, parcel.sums)


def test_bfloat16_computes_near_float32_and_keeps_weights_and_sums_in_float32(small):
    items = items_of(small, 1)
    exact = parcel_of(fresh(small), items)
    replica = fresh(parse_overrides(small, ["optim.compute_dtype=bfloat16"]))
    parcel = parcel_of(replica, items)
    assert {each.dtype for each in replica.weights().values()} == {torch.float32}
    assert {each.dtype for each in replica.optimizer_state().values()} == {torch.float32}
    # 8 bits of mantissa through two layers
    assert torch.allclose(parcel.sums[0], exact.sums[0], rtol=0.02)
    same = torch.nn.functional.cosine_similarity(parcel.gradient, exact.gradient, dim=0)
    assert 0.98 < same < 1.0 - 1e-9


@pytest.mark.parametrize("weighting", ["decay", "dpace"])
def test_each_position_counts_the_same_wherever_it_was_computed(small, weighting):
    small = parse_overrides(small, [f"loss.weighting={weighting}"])
    one, two = items_of(small, 2)
    replica = fresh(small)
    both = parcel_of(replica, [one, two])
    expected = both.gradient / both.sums[WEIGHT]
    first, second = fresh(small), fresh(small)
    parcels = (parcel_of(first, [one]), parcel_of(second, [two]))
    mean = sum(p.gradient for p in parcels) / sum(p.sums[WEIGHT] for p in parcels)
    assert parcels[0].sums[WEIGHT] != parcels[1].sums[WEIGHT]
    assert torch.allclose(mean, expected, atol=1e-7)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_changes_no_bit_and_is_counted(small, value):
    items = items_of(small, 1)
    replica = fresh(small)
    replica.apply((parcel_of(replica, items),), 0)
    before = {name: view.clone() for name, view in replica.weights().items()}
    moments = {name: view.clone() for name, view in replica.optimizer_state().items()}
    broken = parcel_of(replica, items, step=1)
    broken.gradient[3] = value
    sums = replica.apply((broken,), 1)
    assert sums[6] == 1.0
    assert all(torch.equal(before[name], view) for name, view in replica.weights().items())
    after = replica.optimizer_state()
    assert all(torch.equal(moments[name], after[name]) for name in moments)


def test_a_replica_goes_on_bit_for_bit_from_saved_state(small):
    items = items_of(small, 2)
    straight, copy = fresh(small), fresh(small)
    straight.apply((parcel_of(straight, items),), 0)
    weights = {name: view.clone() for name, view in straight.weights().items()}
    copy.load(weights, straight.optimizer_state())
    for replica in (straight, copy):
        replica.apply((parcel_of(replica, items, 1),), 1)
    assert torch.equal(straight.flat.weights, copy.flat.weights)


def test_gains_do_not_decay_and_matrices_do(small):
    replica = fresh(parse_overrides(small, ["optim.weight_decay=0.5"]))
    groups = replica.optimizer.param_groups
    assert [group["weight_decay"] for group in groups] == [0.5, 0.0]
    matrices = sum(p.numel() for p in replica.drafter.parameters() if p.ndim > 1)
    assert groups[0]["params"][0].numel() == matrices


def test_the_rate_rises_linearly_then_falls_to_its_floor(small):
    optim = parse_overrides(
        small, ["optim.steps=100", "optim.lr=1.0", "optim.warmup_ratio=0.1"]
    ).optim
    rates = [learning_rate(optim, step) for step in range(101)]
    assert rates[:10] == pytest.approx([(i + 1) / 10 for i in range(10)])
    assert rates[10] == pytest.approx(1.0)
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert rates[100] == pytest.approx(0.1)


def test_a_drafter_can_learn_one_batch_by_heart(small):
    config = parse_overrides(small, ["optim.steps=80", "optim.lr=1e-2"])
    items = items_of(config, 1)
    replica = fresh(config)
    losses = []
    for step in range(80):
        parcel = parcel_of(replica, items, step)
        losses.append(float(parcel.sums[0] / parcel.sums[1]))
        replica.apply((parcel,), step)
    assert losses[-1] < 0.1 * losses[0]
