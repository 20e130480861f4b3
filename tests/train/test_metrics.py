"""The acceptance estimate: correct prefix of each block, bonus included."""

from __future__ import annotations

import math

import pytest
import torch
from dflash_train.metrics import FIELDS, block_sums, correct_prefix, read_metrics


def test_a_prefix_ends_at_the_first_miss():
    correct = torch.tensor([True, True, False, True, False, True, True])
    rows = torch.tensor([1, 2, 3, 5, 6, 9, 10])
    assert correct_prefix(correct, rows, 3, 4).tolist() == [2, 1, 2]


def test_a_row_that_does_not_count_ends_a_prefix_too():
    assert correct_prefix(torch.tensor([True, True]), torch.tensor([1, 3]), 1, 4).tolist() == [1]


def test_blocks_without_a_row_are_left_out_of_the_mean():
    live = torch.tensor([[False, True, True], [False, False, False]])
    rows = torch.tensor([1, 2])
    sums = block_sums(torch.tensor([7, 8]), torch.tensor([7, 8]), rows, live)
    assert sums.tolist() == [2.0, 1.0, 1.0]


def test_the_estimate_counts_the_bonus_token():
    sums = torch.zeros(len(FIELDS))
    sums[FIELDS.index("accepted")], sums[FIELDS.index("blocks")] = 9.0, 3.0
    assert read_metrics(sums).acceptance_length == pytest.approx(4.0)


def test_what_was_not_counted_is_not_a_number_and_not_zero():
    assert math.isnan(read_metrics(torch.zeros(len(FIELDS))).loss)
