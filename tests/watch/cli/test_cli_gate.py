"""The last gate before a terminal: no escape code of a run passes, ours and all content do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from dflash_watch.commands.context import write_line
from dflash_watch.commands.lines import is_unread
from dflash_watch.model import Snapshot, Verdict
from dflash_watch.render.jsonl import render_json
from watch.cli.conftest import Bench

HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31mname\x7f\u202e\ud800"


def test_an_escape_code_in_a_line_is_left_out(capfd: pytest.CaptureFixture[str]) -> None:
    write_line(f"process {HOSTILE}\n  two")
    assert capfd.readouterr().out == "process name\n  two\n"


def test_only_our_own_colours_stay(capfd: pytest.CaptureFixture[str]) -> None:
    write_line(f"\x1b[31;1mBAD\x1b[0m {HOSTILE}", has_colour=True)
    assert capfd.readouterr().out == "\x1b[31;1mBAD\x1b[0m name\n"
    write_line("\x1b[31;1mBAD\x1b[0m")
    assert capfd.readouterr().out == "BAD\n"


def test_json_keeps_every_character_and_sends_none_that_a_terminal_obeys() -> None:
    name = "\x9b31m\x7f\x85\u202e\U000e0001é"
    snapshot = Snapshot(
        t=0.0, run=name, verdict=Verdict.RUNNING, since_t=0.0, failure="healthy", summary="s"
    )
    line = render_json(snapshot)
    assert line.isprintable()
    assert json.loads(line)["run"] == name


@pytest.mark.parametrize("closed", [">&-", "<&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_are_no_error(closed: str, bench: Bench) -> None:
    run = bench.run("plain_loop.py", "--steps", "100000", "--step-s", "0.05")
    command = f'"$0" -m dflash_watch.cli check --pid {run.pid} {closed}'
    done = subprocess.run(
        ["sh", "-c", command, sys.executable], env=bench.environment, check=False, timeout=60,
        capture_output=True, text=True, cwd=bench.folder,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_a_reader_that_has_gone_is_noticed_without_a_line_to_write() -> None:
    reader, writer = os.pipe()
    assert not is_unread(writer)
    os.close(reader)
    assert is_unread(writer)
    os.close(writer)


def test_a_terminal_and_a_file_are_never_without_reader(tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as file:
        assert not is_unread(file.fileno())
    near, far = os.openpty()
    assert not is_unread(far)
    os.close(near)
    os.close(far)


@pytest.mark.parametrize(
    "words",
    ["explain nan-loss", "explain", "drill --list", "incidents", "diagnose --log /proc/version"],
)
def test_a_full_disk_behind_standard_output_is_one_line(words: str, bench: Bench) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "dflash_watch.cli", *words.split()],
            env=bench.environment, stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert (done.returncode, done.stderr.count("\n")) == (3, 1)
    assert "Traceback" not in done.stderr
