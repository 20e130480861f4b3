"""What one dump proves by itself, on dumps of real processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from dflash_watch.model import Snapshot
from dflash_watch.pasted.files import read_files
from dflash_watch.pasted.judge import judge_pasted
from dflash_watch.playbooks import load_playbooks

STACKS = Path(__file__).parents[1] / "readers" / "stacks"


def judged(name: str) -> Snapshot:
    evidence = read_files({"stacks": STACKS / name})
    return judge_pasted(evidence, load_playbooks(), 1_790_000_000.0)


def test_a_lock_kept_by_a_sleeping_c_call_is_named_from_one_dump() -> None:
    seen = judged("pystack-gil.txt")
    assert (seen.failure, seen.subject) == ("gil-held", "thread 22877")
    assert "called by hog /srv/run/gil.py:5" in seen.summary


@pytest.mark.parametrize("name", ["pystack-native.txt", "py-spy-native.txt", "pystack-gc.txt"])
def test_a_lock_that_somebody_works_with_is_not_held(name: str) -> None:
    assert judged(name).failure != "gil-held"
