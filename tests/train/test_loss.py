"""The chunked loss against the plain one, and the weights of positions."""

from __future__ import annotations

import math

import pytest
import torch
from dflash_train.config import default_decay
from dflash_train.loss import cross_entropy, pace_weights, position_weights
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional


def test_weights_start_after_the_anchor_and_fall_by_the_decay():
    weights = position_weights(5, 2.0).tolist()
    assert weights[0] == 0.0
    assert weights[1:] == pytest.approx([1.0, math.exp(-0.5), math.exp(-1.0), math.exp(-1.5)])


def test_without_decay_all_drafted_positions_weigh_alike():
    assert position_weights(4, math.inf).tolist() == [0.0, 1.0, 1.0, 1.0]


@pytest.mark.parametrize(("size", "decay"), [(16, 7.0), (10, 5.0), (8, 4.0), (4, 2.0)])
def test_the_decay_follows_the_block_as_in_the_paper(size, decay):
    assert default_decay(size) == pytest.approx(decay)


@pytest.mark.parametrize(("size", "decay"), [(1, 4.0), (8, 0.0), (8, -1.0), (8, math.nan)])
def test_weights_of_an_impossible_block_are_refused(size, decay):
    with pytest.raises(ValueError, match="expected"):
        position_weights(size, decay)


def rows(count, seed=0):
    stream = torch.Generator().manual_seed(seed)
    hidden = torch.randn(count, 12, generator=stream, dtype=torch.float64)
    head = torch.randn(17, 12, generator=stream, dtype=torch.float64)
    labels = torch.randint(0, 17, (count,), generator=stream)
    weights = torch.rand(count, generator=stream, dtype=torch.float64)
    return hidden, head, labels, weights


@pytest.mark.parametrize("chunk", [1, 3, 7, 64])
def test_the_chunked_loss_and_its_gradient_are_those_of_the_plain_one(chunk):
    hidden, head, labels, weights = rows(7)
    ours, plain = hidden.clone().requires_grad_(), hidden.clone().requires_grad_()
    losses, best = cross_entropy(ours, head, labels, chunk)
    total = (weights * losses).sum()
    (3.0 * total).backward()
    logits = plain @ head.T
    expected = (weights * functional.cross_entropy(logits, labels, reduction="none")).sum()
    (3.0 * expected).backward()
    # logits are turned to float32 inside: 1e-6 of values of order 10
    assert total.item() == pytest.approx(expected.item(), rel=1e-6)
    assert torch.allclose(ours.grad, plain.grad, atol=1e-5)
    assert torch.equal(best, logits.argmax(dim=1))


def test_the_lm_head_is_never_asked_about_rows_that_do_not_exist():
    hidden, head, labels, _ = rows(0)
    losses, best = cross_entropy(hidden.requires_grad_(), head, labels, 8)
    losses.sum().backward()
    assert losses.shape == (0,)
    assert best.shape == (0,)


def test_the_frozen_lm_head_gets_no_gradient():
    hidden, head, labels, _ = rows(4)
    losses, _ = cross_entropy(hidden.requires_grad_(), head.requires_grad_(), labels, 8)
    losses.sum().backward()
    assert head.grad is None


def expected_pace(chances, floor):
    """The weights of one block written out: its positions that count, in order."""
    kept = [(1 - floor) * chance + floor for chance in chances]
    return [
        sum(math.prod(kept[: last + 1]) for last in range(first, len(kept)))
        for first in range(len(kept))
    ]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.floats(0.001, 1.0), max_size=4), min_size=1, max_size=4),
    st.floats(0.1, 1.0),
)
def test_pace_weighs_a_row_by_what_it_adds_to_the_expected_acceptance(blocks, floor):
    losses = torch.tensor([-math.log(chance) for block in blocks for chance in block])
    places = [5 * n + 1 + k for n, block in enumerate(blocks) for k in range(len(block))]
    rows = torch.tensor(places, dtype=torch.long)
    weights = pace_weights(losses, rows, len(blocks), 5, floor)
    expected = [weight for block in blocks for weight in expected_pace(block, floor)]
    assert weights.tolist() == pytest.approx(expected, rel=1e-5)


def test_no_gradient_flows_through_what_pace_weighs():
    losses = torch.tensor([0.5, 1.0], requires_grad=True)
    weights = pace_weights(losses, torch.tensor([1, 2]), 1, 3, 0.5)
    (weights * losses).sum().backward()
    assert torch.equal(losses.grad, weights)
