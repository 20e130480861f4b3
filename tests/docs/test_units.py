"""The units of docs/systemd: systemd understands them, and we understand what they start."""

import configparser
import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest
from dflash_watch.cli import PARSERS
from dflash_watch.commands.arguments import split_command
from dflash_watch.commands.request import build_request

ROOT = Path(__file__).resolve().parents[2]
UNITS = sorted((ROOT / "docs" / "systemd").glob("*.service"))


def service(unit: Path) -> configparser.SectionProxy:
    parser = configparser.ConfigParser(interpolation=None, strict=True, comment_prefixes=("#",))
    parser.optionxform = str
    parser.read_string(unit.read_text())
    return parser["Service"]


def test_there_is_one_for_the_machine_and_one_for_a_person():
    assert [one.name for one in UNITS] == [
        "dflash-watch-user@.service", "dflash-watch@.service"
    ]  # fmt: skip


@pytest.mark.parametrize("unit", UNITS, ids=lambda one: one.name)
def test_systemd_finds_nothing_wrong_with_it(unit, tmp_path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed here")
    program = tmp_path / "dflash-watch"
    program.write_text("#!/bin/sh\n")
    program.chmod(stat.S_IRWXU)
    started = service(unit)["ExecStart"].split()[0]
    made = tmp_path / unit.name.replace("@", "@night")
    made.write_text(unit.read_text().replace(started, str(program)))
    scope = ["--user"] if "user" in unit.name else ["--system"]
    shown = subprocess.run(
        ["systemd-analyze", *scope, "--man=no", "verify", str(made)],
        capture_output=True, text=True,
        env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}, timeout=120, check=False,
    )  # fmt: skip
    ours = [line for line in shown.stderr.splitlines() if "dflash-watch" in line]
    assert (shown.returncode, ours) == (0, []), shown.stderr


@pytest.mark.parametrize("unit", UNITS, ids=lambda one: one.name)
def test_what_it_starts_is_a_command_line_of_ours(unit):
    _, *words = service(unit)["ExecStart"].replace("%i", "night").split()
    options = next(
        line.split("OPTIONS=")[1].split("'")[0]
        for line in unit.read_text().splitlines()
        if "OPTIONS=" in line
    )
    command, rest = split_command([*words[:-1], *options.split()])
    assert (command, words[-1]) == ("serve", "$OPTIONS")
    request = build_request(PARSERS[command]().parse(rest))
    assert request.options.name == "night"


@pytest.mark.parametrize("unit", UNITS, ids=lambda one: one.name)
def test_it_is_watched_begun_anew_and_bounded(unit):
    told = service(unit)
    assert (told["Type"], told["Restart"]) == ("notify", "on-failure")
    assert {"WatchdogSec", "MemoryMax", "CPUQuota", "NoNewPrivileges"} <= set(told)
