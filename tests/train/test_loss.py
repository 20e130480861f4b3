"""The chunked loss against the plain one, and the weights of positions."""

from __future__ import annotations

import math

import pytest
import torch
from dflash_train.loss import position_weights, weighted_cross_entropy
from torch.nn import functional


def test_weights_start_after_the_anchor_and_fall_by_the_decay():
    weights = position_weights(5, 2.0).tolist()
    assert weights[0] == 0.0
    assert weights[1:] == pytest.approx([1.0, math.exp(-0.5), math.exp(-1.0), math.exp(-1.5)])


@pytest.mark.parametrize(("size", "decay"), [(1, 4.0), (8, 0.0), (8, -1.0)])
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
    total, best = weighted_cross_entropy(ours, head, labels, weights, chunk)
    (3.0 * total).backward()
    logits = plain @ head.T
    expected = (weights * functional.cross_entropy(logits, labels, reduction="none")).sum()
    (3.0 * expected).backward()
    # logits are turned to float32 inside: 1e-6 of values of order 10
    assert total.item() == pytest.approx(expected.item(), rel=1e-6)
    assert torch.allclose(ours.grad, plain.grad, atol=1e-5)
    assert torch.equal(best, logits.argmax(dim=1))


def test_the_lm_head_is_never_asked_about_rows_that_do_not_exist():
    hidden, head, labels, weights = rows(0)
    total, best = weighted_cross_entropy(hidden.requires_grad_(), head, labels, weights, 8)
    total.backward()
    assert total.item() == 0.0
    assert best.shape == (0,)


def test_the_frozen_lm_head_gets_no_gradient():
    hidden, head, labels, weights = rows(4)
    total, _ = weighted_cross_entropy(
        hidden.requires_grad_(), head.requires_grad_(), labels, weights, 8
    )
    total.backward()
    assert head.grad is None
