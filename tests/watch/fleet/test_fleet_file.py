"""A fleet file is read as command lines are; what is wrong is one line with file, entry and key."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from dflash_watch.cli import main
from dflash_watch.commands.fleetfile import Member, read_fleet
from dflash_watch.errors import UsageError
from dflash_watch.place import Place

GOOD = """
host = "pve"
every-s = 2
on-stall = "true --tell"
incidents = "kept"

[[run]]
name = "qwen"
ct = 200
run-dir = "/data/runs/a"
roles = "target=0-4,drafter=5-7"
expect-tokens-per-s = 14200

[[run]]
ct = 201
dry-run = true
every-s = 0.5
record = "night.jsonl"
"""


def read(tmp_path: Path, text: str) -> list[Member]:
    path = tmp_path / "fleet.toml"
    path.write_text(text)
    return read_fleet(path, dict(os.environ))


def test_keys_are_the_options_and_those_above_hold_for_all(tmp_path):
    first, second = read(tmp_path, GOOD)
    assert (first.name, second.name) == ("qwen", "pve · ct 201")
    assert first.request.place == Place(host="pve", entry="pct", entry_arg="200")
    assert first.request.target.run_dir == "/data/runs/a"
    assert first.request.options.roles == {"target": (0, 1, 2, 3, 4), "drafter": (5, 6, 7)}
    assert first.request.options.expect_tokens_per_s == 14200
    assert (first.request.every_s, second.request.every_s) == (2.0, 0.5)
    assert (first.given.dry_run, second.given.dry_run) == (False, True)
    assert first.hook is not None
    assert first.hook.argv == ("true", "--tell")


def test_paths_of_this_machine_are_seen_from_the_file(tmp_path):
    first, second = read(tmp_path, GOOD)
    assert first.given.incidents == str(tmp_path / "kept")
    assert second.given.record == str(tmp_path / "night.jsonl")
    (here,) = read(tmp_path, '[[run]]\nlog = "a.log"\n')
    assert here.request.target.log == str(tmp_path / "a.log")
    (there,) = read(tmp_path, '[[run]]\nhost = "box"\nlog = "a.log"\n')
    assert there.request.target.log == "a.log"


def test_the_example_of_the_page_is_understood(tmp_path):
    page = (Path(__file__).parents[3] / "docs" / "fleet.md").read_text()
    (tmp_path / "notify.sh").touch()
    text = page.split("```")[1].replace("/etc/dflash-watch", str(tmp_path))
    first, second = read(tmp_path, text)
    assert (first.name, second.name) == ("qwen3-4b", "glm")
    assert second.request.place == Place(host="10.1.2.7", entry="docker", entry_arg="train")


RUN = "[[run]]\nname = 'a'\n"
WRONG = {
    "[[run]\n": "fleet.toml: no TOML: ",
    "x = 1\n": "fleet.toml: no runs; write a table [[run]]",
    "run = 3\n": "fleet.toml: no runs; ",
    "name = 'x'\n" + RUN: "fleet.toml: name: not for all runs; write it below [[run]]",
    RUN + "hots = 'box'\n": "fleet.toml: run 1 'a': hots: no such key; did you mean host?",
    RUN + "json = true\n": "fleet.toml: run 1 'a': json: no such key",
    RUN + "until-end = true\n": "fleet.toml: run 1 'a': until-end: no such key",
    RUN + "ct = [1]\n": "fleet.toml: run 1 'a': ct: [1], expected a text or a number",
    RUN + "ct = true\n": "fleet.toml: run 1 'a': ct: True, expected a text or a number",
    RUN + "dry-run = 1\n": "fleet.toml: run 1 'a': dry-run: 1, expected true or false",
    RUN + "host = 'a b'\n": "fleet.toml: run 1 'a': host: 'a b' is not a host; write HOST",
    RUN + "every-s = 0\n": "fleet.toml: run 1 'a': every-s: ",
    RUN + "ct = 1\ndocker = 'x'\n": "fleet.toml: run 1 'a': docker: not allowed with ct; see",
    RUN
    + "on-stall = 'sh no-such.sh'\n": "run 1 'a': on-stall: no file no-such.sh for sh; write its",
    RUN + "on-stall = 'no-such-program'\n": "fleet.toml: run 1 'a': on-stall: no program",
    RUN + "[[run]]\nname = 'a'\npid = 7\n": "fleet.toml: run 2 'a': name: 'a' is taken",
    RUN + "[[run]]\nname = 'b'\n": "fleet.toml: run 2 'b': the same run as 'a'",
    RUN + "record = 'x'\n[[run]]\nname='b'\npid=7\nrecord='x'\n": "record: the file of 'a'",
}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_wrong_is_one_line_with_file_entry_and_key(tmp_path, text, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("fleet.toml").write_text(text)
    assert main(["fleet", "fleet.toml"]) == 64
    (line,) = capsys.readouterr().err.splitlines()
    assert WRONG[text] in line
    assert "--" not in line.replace("dflash-watch --help", "")


@pytest.mark.parametrize("kind", ["missing", "folder", "pipe", "binary", "huge"])
def test_what_is_no_fleet_file_is_refused_without_waiting(tmp_path, kind):
    path = tmp_path / "fleet.toml"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "binary":
        path.write_bytes(b"\xff\xfe\x00")
    elif kind == "huge":
        path.write_text("# " + "x" * (2 << 20))
    with pytest.raises(UsageError) as caught:
        read_fleet(path, {})
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
