"""Where blocks start and which of their positions count."""

from __future__ import annotations

import torch
from dflash_train import streams
from dflash_train.anchors import block_labels, sample_anchors
from hypothesis import given, settings
from hypothesis import strategies as st

rows = st.lists(st.booleans(), min_size=3, max_size=30)


@settings(max_examples=80, deadline=None)
@given(rows, st.integers(1, 12), st.integers(0, 99))
def test_anchors_are_distinct_ascending_and_have_something_to_draft(row, count, seed):
    supervised = torch.tensor([row])
    anchors, valid = sample_anchors(supervised, count, streams.generator(seed, "anchors"))
    assert anchors.shape == valid.shape == (1, min(count, len(row)))
    picked = anchors[valid].tolist()
    assert picked == sorted(set(picked))
    allowed = [i for i in range(1, len(row) - 1) if row[i] and row[i + 1]]
    assert set(picked) <= set(allowed)
    assert len(picked) == min(count, len(allowed))
    assert not anchors[~valid].any()


def test_anchors_depend_on_seed_and_batch_only():
    supervised = torch.ones(2, 40, dtype=torch.bool)
    first = sample_anchors(supervised, 8, streams.generator(3, "anchors", 17))
    torch.rand(100)
    again = sample_anchors(supervised, 8, streams.generator(3, "anchors", 17))
    other = sample_anchors(supervised, 8, streams.generator(3, "anchors", 18))
    assert torch.equal(first[0], again[0])
    assert not torch.equal(first[0], other[0])


def labels_of(tokens, supervised, anchor, size):
    labels, live = block_labels(
        torch.tensor([tokens]),
        torch.tensor([supervised]),
        torch.tensor([[anchor]]),
        torch.tensor([[True]]),
        size,
    )
    return labels[0, 0].tolist(), live[0, 0].tolist()


def test_position_k_of_a_block_has_the_token_k_after_the_anchor_as_label():
    labels, live = labels_of([10, 11, 12, 13, 14, 15], [True] * 6, 1, 4)
    assert labels == [11, 12, 13, 14]
    assert live == [False, True, True, True]


def test_nothing_counts_after_a_gap_in_the_supervision():
    _, live = labels_of([0] * 8, [True, True, True, True, False, True, True, True], 2, 6)
    assert live == [False, True, False, False, False, False]


def test_nothing_counts_beyond_the_end_of_the_row():
    _, live = labels_of([0] * 6, [True] * 6, 4, 4)
    assert live == [False, True, False, False]
