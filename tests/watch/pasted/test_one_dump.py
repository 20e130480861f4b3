"""What one dump proves by itself, on dumps of real processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from dflash_watch.model import Snapshot
from dflash_watch.pasted.files import read_files, read_folder
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


WAITS = """Process 29225: python loop.py 40
Python v3.11.7 (/usr/bin/python3.11)

Thread 29228 (idle): "prefetch"
    prefetch (loop.py:6)
    Thread.run (threading.py:982)
Thread 29225 (idle): "MainThread"
    Condition.wait (threading.py:327)
    Queue.get (queue.py:171)
    <module> (loop.py:10)
"""


def test_a_dump_without_a_name_for_it_still_says_where_the_threads_stand(tmp_path: Path) -> None:
    (tmp_path / "stacks.txt").write_text(WAITS)
    (tmp_path / "log.txt").write_text("".join(f"step {i} loss 2.0\n" for i in range(30)))
    seen = judge_pasted(read_folder(tmp_path), load_playbooks(), 1_790_000_000.0)
    told = [one.text for one in seen.evidence if one.kind == "for" and one.source == "stacks"]
    leaf = "MainThread: Condition.wait threading.py:327, waits for an item of a queue"
    assert told == [f"{leaf}, called by <module> loop.py:10", "prefetch: prefetch loop.py:6"]
    assert "counters move" not in seen.summary


@pytest.mark.parametrize("name", ["pystack-native.txt", "py-spy-native.txt", "pystack-gc.txt"])
def test_a_lock_that_somebody_works_with_is_not_held(name: str) -> None:
    assert judged(name).failure != "gil-held"
