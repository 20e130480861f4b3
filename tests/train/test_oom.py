"""Want of memory as one line; everything else as it was."""

from __future__ import annotations

import pytest
import torch
from dflash_train.materials import make_untaught
from dflash_train.oom import OutOfRoomError, advice, asked_for, room_for
from dflash_train.plan.bench import first_rows
from dflash_train.settings import parse_overrides


def batch_of(config):
    return make_untaught(config).source.batch(0)


def test_a_batch_that_finds_no_room_says_how_much_and_what_needs_less(small):
    batch = batch_of(small)
    with pytest.raises(OutOfRoomError) as caught, room_for(batch, small, "cpu"):
        torch.empty(1 << 55, dtype=torch.uint8)
    said = str(caught.value)
    assert said.startswith("out of memory on cpu: 36028797.02 GB more for 2 rows of the bucket ")
    assert "try data.rows below 2, or data.buckets without 128" in said
    assert "optim.gradient_checkpointing=true" in said
    assert caught.value.__cause__ is not None


def test_any_other_error_stays_what_it_was(small):
    with (
        pytest.raises(RuntimeError, match="mat1 and mat2"),
        room_for(batch_of(small), small, "cpu"),
    ):
        torch.ones(2, 3) @ torch.ones(2, 3)


def test_the_amount_is_read_from_a_gpus_message():
    text = "CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 139.8 GiB"
    assert asked_for(torch.OutOfMemoryError(text)) == "2.50 GiB"
    assert asked_for(MemoryError()) == "some memory"
    assert asked_for(RuntimeError("shape mismatch")) is None


def test_only_settings_that_can_go_lower_are_named(small):
    tight = parse_overrides(
        small, ["data.rows=1", "data.buckets=128", "optim.gradient_checkpointing=true"]
    )
    assert advice(tight) == "try loss.num_anchors below 6"
    many = parse_overrides(tight, ["loss.num_anchors=512"])
    assert advice(many) == "try loss.num_anchors below 128", "more find no place in a row"
    assert len(first_rows(batch_of(small), 1).input_ids_BT) == 1
