"""The way breaks in one manner after another under one watch; all of them: bench_path_faults.py."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from e2e.paths.faults import FAULTS
from e2e.paths.ground import Ground, Tape, check_counted_once, endure
from e2e.watched import Watched

pytestmark = [pytest.mark.e2e, pytest.mark.ssh, pytest.mark.lxc]
HERE = ("bytes corrupted", "key withdrawn", "noisy login shell", "agent killed")
"""Quick ones of kinds that tests/watch/transport does not have."""


@pytest.fixture
def ground(watched: Watched) -> Iterator[Ground]:
    """A run, and a relay before its host."""
    ground = Ground(watched)
    yield ground
    ground.close()


def test_one_watch_endures_fault_after_fault_and_counts_nothing_twice(ground: Ground) -> None:
    """Findings 4 and 5: no exit status and no keepalive tells of a lost way."""
    watch = ground.watch("watch")
    tape = Tape(watch.capture)
    for fault in FAULTS:
        if fault.name in HERE:
            endure(ground, watch, tape, fault._replace(hold_s=0.5))
    assert watch.incidents() == []
    assert check_counted_once(ground, tape) > 0
