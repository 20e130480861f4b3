"""A drafter learns, from what the target knows: measured in decoding."""

from __future__ import annotations

import pytest
from bench import bench_learning
from bench.bench_learning import config_of, learn
from dflash_train.materials import make_tiny


@pytest.mark.slow
def test_with_the_targets_features_far_more_is_accepted_than_without(tmp_path):
    config = config_of("block 8", seed=0, steps=80)
    materials = make_tiny(config, tmp_path, lambda _: None)
    lengths = []
    for is_blind in (False, True):
        ((step, found),) = learn(config, materials, (80,), is_blind=is_blind)
        assert step == 80
        lengths.append(found.acceptance.length)
    seeing, blind = lengths  # seen: 4.0 and 1.8
    assert seeing > 1.6 * blind
    assert blind > 1.2  # it does learn what can be known without: the comparison is fair


def test_a_table_of_runs_says_what_is_missing(tmp_path):
    out = tmp_path / "rows.jsonl"
    out.write_text('{"variant": "block 8", "seed": 0, "step": 5, "acceptance_length": 2.0}\n')
    lines = bench_learning.table(out, ["block 8", "block 4"], [0, 1], (5, 10))
    assert lines[2:] == [
        "| block 8 | **2.00** (2.00) | unknown |",
        "| block 4 | unknown | unknown |",
    ]
