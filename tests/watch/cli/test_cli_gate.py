"""The last gate before a terminal: no escape code of a run passes, ours and all content do."""

from __future__ import annotations

import json

import pytest
from dflash_watch.commands.context import write_line
from dflash_watch.model import Snapshot, Verdict
from dflash_watch.render.jsonl import render_json

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
