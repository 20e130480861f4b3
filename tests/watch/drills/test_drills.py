"""What is said of drills, chosen, counted and undone, without running any to its end."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest
from dflash_watch.commands.drill import choose
from dflash_watch.drills import ground, report
from dflash_watch.drills.catalog import DRILLS
from dflash_watch.drills.trial import Result, run_drill
from dflash_watch.errors import UsageError
from dflash_watch.model import Verdict
from dflash_watch.playbooks import load_playbooks

BY_NAME = {drill.name: drill for drill in DRILLS}
KILLED = BY_NAME["killed"]


def caught(drill=KILLED, **changes):
    return replace(
        Result(
            drill=drill, state="caught", verdict="crashed", failure=drill.failure,
            subject=drill.subject, seconds=2.94,
        ),
        **changes,
    )  # fmt: skip


def test_each_drill_has_a_name_of_its_own_and_an_answer_that_exists():
    assert len(BY_NAME) == len(DRILLS)
    assert {drill.failure for drill in DRILLS} <= set(load_playbooks())
    assert {verdict for drill in DRILLS for verdict in drill.verdicts} <= set(Verdict)


def test_all_means_every_drill_and_names_come_in_the_catalogues_order():
    assert choose(["all"]) == list(DRILLS)
    assert [one.name for one in choose(["killed", "lock-cycle"])] == ["lock-cycle", "killed"]


@pytest.mark.parametrize(
    ("names", "says"),
    [([], "which fault"), (["kiled"], "unknown fault 'kiled'"), (["zzz"], "--list")],
)
def test_a_name_that_is_none_is_refused_with_the_next_step(names, says):
    with pytest.raises(UsageError, match=says):
        choose(names)


def test_the_list_shows_what_is_right_for_every_drill():
    shown = report.catalog()
    assert all(drill.name in shown and drill.failure in shown for drill in DRILLS)


def test_a_missed_drill_is_the_exit_code_whatever_else_was_caught():
    missed = Result(drill=KILLED, state="missed", why="not named within 60 s")
    skipped = Result(drill=KILLED, state="skipped", why="no torch here")
    assert report.exit_code([caught()]) == 0
    assert report.exit_code([caught(), skipped]) == 0
    assert report.exit_code([caught(), missed, skipped]) == 2
    assert report.exit_code([skipped]) == 3
    assert report.summary([caught(), missed, skipped]).splitlines() == [
        "1 of 3 caught, missed: killed",
        "skipped killed: no torch here",
    ]


def test_the_table_is_aligned_and_a_missed_row_says_what_was_said_instead():
    missed = Result(
        drill=KILLED, state="missed", verdict="blind", failure="process-vanished", subject="run"
    )
    rows = report.table([caught(), missed]).splitlines()
    assert len({len(row) for row in rows}) == 1
    assert "MISSED" in rows[3]
    assert "process-vanished" in rows[3]
    assert "2.9" in rows[2]


def test_the_object_of_a_result_has_the_answer_and_what_was_expected():
    told = report.as_object(caught())
    assert (told["drill"], told["state"], told["failure"]) == ("killed", "caught", KILLED.failure)
    assert told["expected"]["verdicts"] == ["crashed"]


def test_what_the_machine_lacks_is_a_skip_with_its_reason(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    drill = replace(KILLED, needs=frozenset({"tmpfs"}))
    result = run_drill(drill, tmp_path, {}, threading.Event())
    assert (result.state, result.why) == ("skipped", "a small file system of its own needs root")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_a_small_file_system_is_full_soon_and_gone_afterwards(tmp_path):
    with ground.tmpfs(tmp_path / "small") as folder:
        assert os.path.ismount(folder)
        with pytest.raises(OSError, match="No space left"):
            (folder / "file").write_bytes(b"\0" * (ground.TMPFS_BYTES + 1))
    assert not os.path.ismount(tmp_path / "small")


@pytest.mark.skipif(
    ground.lacks("memory-cgroup") is not None, reason=ground.lacks("memory-cgroup") or ""
)
def test_a_memory_group_ends_what_goes_beyond_its_limit_and_is_removed(tmp_path):
    hog = "import time; time.sleep(1); x = b'1' * (256 << 20); print('had it')"
    with ground.memory_group() as group:
        process = ground.start(
            [sys.executable, "-c", hog], tmp_path, tmp_path / "out", os.environ, group
        )
        group.limit(64 << 20)
        assert process.wait(60) == -9
        ground.end(process)
    assert "had it" not in (tmp_path / "out").read_text()
    with ground.memory_group():
        pass  # the name is free again


def test_a_stopped_program_and_its_children_are_ended(tmp_path):
    words = (
        "import os, subprocess, sys; subprocess.Popen(['sleep', '600']); os.kill(os.getpid(), 19)"
    )
    process = ground.start([sys.executable, "-c", words], tmp_path, tmp_path / "out", os.environ)
    os.waitpid(process.pid, os.WUNTRACED)
    ground.end(process)

    def alive() -> list[str]:
        shown = subprocess.run(
            ["ps", "-o", "stat=", "-g", str(process.pid)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        return [state for state in shown.stdout.split() if not state.startswith("Z")]

    end_s = time.monotonic() + 60
    while alive():  # what was killed may take its time
        assert time.monotonic() < end_s
        time.sleep(0.05)


LEAVE = """
import os, pathlib, signal, sys
from dflash_watch.drills import ground
folder = pathlib.Path(sys.argv[1])
with ground.claimed(folder), ground.tmpfs(folder / "run") as run:
    (run / "filler").write_bytes(bytes(1000))
    print("there", flush=True)
    sys.stdin.read()
"""
LATER_S = 2 * ground.YOUNG_S


@pytest.mark.skipif(os.geteuid() != 0, reason="a file system of its own needs root")
def test_what_a_killed_drill_left_is_removed_by_the_next_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(ground, "CGROUP", tmp_path / "no-groups")
    left, alive = tmp_path / f"{ground.PREFIX}left", tmp_path / f"{ground.PREFIX}alive"
    link, outside = tmp_path / f"{ground.PREFIX}link", tmp_path / "outside"
    for folder in (left, alive, outside):
        folder.mkdir()
    link.symlink_to(outside)
    words = [sys.executable, "-c", LEAVE]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    both = [subprocess.Popen([*words, one], env=environment, **pipes) for one in (left, alive)]
    try:
        for one in both:
            assert one.stdout.readline() == b"there\n"
        both[0].kill()
        both[0].wait()
        ground.sweep(time.time())
        assert os.path.ismount(left / "run"), "too young to be taken away"
        ground.sweep(time.time() + LATER_S)
        assert not left.exists()
        assert os.path.ismount(alive / "run")
        assert link.is_symlink()
        assert outside.is_dir()
    finally:
        for one in both:
            one.communicate()
        ground.sweep(time.time() + LATER_S)
    assert not alive.exists()


def test_a_group_that_is_still_used_for_a_moment_ends_nothing(tmp_path, monkeypatch):
    """A killed process leaves its group a little after it was waited for."""
    monkeypatch.setattr(ground, "EMPTY_WITHIN_S", 0.1)
    (tmp_path / "group").mkdir()
    (tmp_path / "group" / "busy").touch()
    ground.MemoryGroup(tmp_path / "group").remove()
    (tmp_path / "group" / "busy").unlink()
    ground.MemoryGroup(tmp_path / "group").remove()
    assert not (tmp_path / "group").exists()
