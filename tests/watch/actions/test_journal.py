"""The journal: private, masked, bounded, shared, and never a reason to stop watching."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from dflash_watch.clock import SystemClock
from dflash_watch.journal import Journal, JournalFile, older, read_journal

LONG_S = 60.0
SECRET = "hf_AbCdEfGhIjKlMnOpQrStUv0123"


def written(path: Path, *outcomes: str, **more: object) -> list[dict]:
    file = JournalFile(path, **more)
    note = Journal(file, SystemClock(), "box")
    for outcome in outcomes:
        note("stacks", outcome)
    assert file.close(LONG_S)
    return list(read_journal(path))


def test_a_line_has_moment_host_watcher_action_and_outcome(tmp_path):
    file = JournalFile(tmp_path / "deep" / "journal.jsonl")
    Journal(file, SystemClock(), "box · ct 200", "qwen")("tool", "sent", bytes=7, missing=None)
    file.close(LONG_S)
    (line,) = (tmp_path / "deep" / "journal.jsonl").read_text().splitlines()
    told = json.loads(line)
    assert told.pop("t") > 1.7e9
    assert told == {
        "watcher_pid": os.getpid(), "host": "box · ct 200", "run": "qwen", "action": "tool",
        "outcome": "sent", "bytes": 7,
    }  # fmt: skip


def test_only_its_owner_reads_it_also_where_others_could_before(tmp_path):
    path = tmp_path / "journal.jsonl"
    path.touch(mode=0o644)
    written(path, "asked")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_no_secret_and_no_escape_code_stands_in_it(tmp_path):
    path = tmp_path / "journal.jsonl"
    file = JournalFile(path)
    note = Journal(file, SystemClock(), "box")
    note("hook", f"exit 1: {SECRET}", output=f"password={SECRET}\x1b]0;title\x07\x9b31m")
    file.close(LONG_S)
    assert SECRET not in path.read_text()
    assert path.read_text().rstrip("\n").isprintable()


def test_it_is_turned_over_at_its_size_and_read_in_order(tmp_path):
    path = tmp_path / "journal.jsonl"
    told = written(path, *(f"number {n}" for n in range(60)), limit_bytes=2000)
    assert path.stat().st_size <= 2000
    assert older(path).stat().st_size <= 2000
    numbers = [int(one["outcome"].split()[1]) for one in told]
    assert numbers == list(range(numbers[0], 60))
    assert sorted(one.name for one in tmp_path.iterdir()) == ["journal.1.jsonl", "journal.jsonl"]


MANY = """
import sys
from pathlib import Path
from dflash_watch.clock import SystemClock
from dflash_watch.journal import Journal, JournalFile
file = JournalFile(Path(sys.argv[1]), limit_bytes=64 << 10)
note = Journal(file, SystemClock(), "box")
for number in range(250):
    note("stacks", f"{sys.argv[2]} {number}")
sys.exit(not file.close(60))
"""


def test_several_watchers_write_into_one_without_losing_or_tearing_a_line(tmp_path):
    path = tmp_path / "journal.jsonl"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    watchers = [
        subprocess.Popen([sys.executable, "-c", MANY, str(path), name], env=environment)
        for name in "abc"
    ]
    assert [one.wait(LONG_S) for one in watchers] == [0, 0, 0]
    kept = [one.read_text().splitlines() for one in (older(path), path) if one.exists()]
    told = [json.loads(line)["outcome"] for lines in kept for line in lines]
    for name in "abc":  # what was turned over twice is gone, what is kept is whole and in order
        numbers = [int(one.split()[1]) for one in told if one.startswith(name)]
        assert numbers == list(range(numbers[0], 250))


def test_a_line_that_was_cut_costs_itself_only(tmp_path):
    path = tmp_path / "journal.jsonl"
    written(path, "one")
    with path.open("a") as file:
        file.write('{"t": 1, "act\n[]\n\xff\n')
    told = written(path, "two")
    assert [one["outcome"] for one in told] == ["one", "two"]


def test_a_journal_that_cannot_be_written_says_so_once_and_how_much_was_lost_later(
    tmp_path, caplog
):
    folder = tmp_path / "kept"
    folder.write_text("a file where the folder should be")
    file = JournalFile(folder / "journal.jsonl")
    note = Journal(file, SystemClock(), "here")
    for number in range(3):
        note("stacks", f"asked {number}")
    end = time.monotonic() + LONG_S
    while file._lost < 3 and time.monotonic() < end:
        time.sleep(0.01)
    assert len(caplog.records) == 1
    folder.unlink()
    note("stacks", "asked again")
    file.close(LONG_S)
    told = [(one["outcome"], one.get("lines")) for one in read_journal(folder / "journal.jsonl")]
    assert told == [("lines lost", 3), ("asked again", None)]
    assert len(caplog.records) == 2


@pytest.mark.parametrize("kind", ["fifo", "folder"])
def test_what_is_no_file_is_refused_without_waiting(tmp_path, kind, caplog):
    path = tmp_path / "journal.jsonl"
    os.mkfifo(path) if kind == "fifo" else path.mkdir()
    file = JournalFile(path)
    Journal(file, SystemClock(), "here")("stacks", "asked")
    assert file.close(LONG_S)
    assert len(caplog.records) == 1
    with pytest.raises(OSError, match="not a regular file"):
        list(read_journal(path))


def test_without_a_file_nothing_is_kept():
    Journal(None, SystemClock(), "here")("stacks", "asked")
