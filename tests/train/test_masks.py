"""The fast mask against the rule written out, position by position."""

from __future__ import annotations

import pytest
import torch
from dflash_train.masks import block_mask, masks_for
from hypothesis import given, settings
from hypothesis import strategies as st


def may_look(query, key, *, anchors, valid, num_tokens, size, window):
    """The rule: context strictly below the anchor, and the own block; with a window only behind."""
    block, offset = divmod(query, size)
    position = anchors[block] + offset
    if key < num_tokens:
        if not valid[block] or key >= anchors[block]:
            return False
        return window is None or key > position - window
    other, other_offset = divmod(key - num_tokens, size)
    if other != block:
        return False
    return window is None or 0 <= offset - other_offset < window


def brute_force(anchors, valid, num_tokens, size, window):
    queries = len(anchors) * size
    return torch.tensor(
        [
            [
                may_look(
                    q,
                    k,
                    anchors=anchors,
                    valid=valid,
                    num_tokens=num_tokens,
                    size=size,
                    window=window,
                )
                for k in range(num_tokens + queries)
            ]
            for q in range(queries)
        ]
    )


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 18), st.booleans()), min_size=1, max_size=4),
    st.integers(2, 5),
    st.one_of(st.none(), st.integers(1, 24)),
)
def test_a_mask_built_from_intervals_is_the_rule_written_out(blocks, size, window):
    anchors, valid = [a for a, _ in blocks], [v for _, v in blocks]
    fast = block_mask(torch.tensor([anchors]), torch.tensor([valid]), 20, size, window)
    assert torch.equal(fast[0], brute_force(anchors, valid, 20, size, window))


def test_a_block_never_sees_the_state_of_its_own_anchor():
    mask = block_mask(torch.tensor([[5]]), torch.tensor([[True]]), 9, 4, None)
    assert mask[0, :, :9].tolist() == [[True] * 5 + [False] * 4] * 4


def test_a_block_that_is_not_valid_sees_itself_and_nothing_else():
    mask = block_mask(torch.tensor([[0]]), torch.tensor([[False]]), 9, 4, None)
    assert not mask[0, :, :9].any()
    assert mask[0, :, 9:].all()


def test_a_sliding_window_is_as_wide_as_serving_counts_it():
    mask = block_mask(torch.tensor([[10]]), torch.tensor([[True]]), 12, 4, 3)
    seen = [torch.nonzero(row).flatten().tolist() for row in mask[0]]
    assert seen == [[8, 9, 12], [9, 12, 13], [12, 13, 14], [13, 14, 15]]


@pytest.mark.parametrize("kinds", [("full_attention",), ("sliding_attention", "full_attention")])
def test_one_mask_is_built_for_each_layer_type_that_occurs(kinds):
    masks = masks_for(kinds, torch.tensor([[4]]), torch.tensor([[True]]), 8, 3, 4)
    assert set(masks) == set(kinds)
