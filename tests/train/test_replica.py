"""Two drafters make the step that one would make with their batches together."""

from __future__ import annotations

import pytest
import torch
from dflash_train import streams
from dflash_train.averaging import Parcel
from dflash_train.materials import make_untaught
from dflash_train.replica import FeatureBatch
from dflash_train.schedule import learning_rate
from dflash_train.settings import parse_overrides
from dflash_train.workers import build_replica


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
    weight = sum(float(item.batch.weights_R.sum()) for item in items)
    return Parcel(gradient=gradient, sums=sums, weight=weight, num_tokens=0, num_padded=0)


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


def test_each_position_counts_the_same_wherever_it_was_computed(small):
    one, two = items_of(small, 2)
    replica = fresh(small)
    both = parcel_of(replica, [one, two])
    expected = both.gradient / both.weight
    first, second = fresh(small), fresh(small)
    parcels = (parcel_of(first, [one]), parcel_of(second, [two]))
    mean = sum(p.gradient for p in parcels) / sum(p.weight for p in parcels)
    assert parcels[0].weight != parcels[1].weight
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
