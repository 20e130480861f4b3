"""The sessions of docs/commands.md, typed into a shell beside the runs that they speak of.

`runs/a` is the tiny run with two drafters that wait for each other, `run.log` the log of a foreign
script. What is shown there must come here: the first line of each answer, numbers aside.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from commands_in_docs import ROOT, Given, given

DEADLINE_S = 120.0
TINY = "target.pretrain_steps=2 data.num_documents=64 data.rows=2 loss.num_anchors=6"
DEADLOCK = f"{TINY} report.every_steps=1 drill.fault=lock-cycle drill.at_step=20"
SESSIONS = [one for one in given([ROOT / "docs" / "commands.md"]) if one.answer is not None]
WATCHING = "dflash-watch --plain --run-dir runs/a"
"""The one session that goes on for ever; it is there from the run's beginning."""
STAMP = re.compile(r"\d{8}T\d{6}Z")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("bash") is None, reason="bash is the shell of the sessions"),
]


def until(condition: Callable[[], object], what: str) -> None:
    """Wait for what must come; the limit only ends a test that has failed."""
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end, f"never: {what}"
        time.sleep(0.05)


class Desk:
    """A folder with our programs on PATH; all that was started in it is ended."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._started: list[subprocess.Popen[bytes]] = []
        (folder / "bin").mkdir()
        for name, module in {"watch": "dflash_watch.cli", "train": "dflash_train.cli"}.items():
            program = folder / "bin" / f"dflash-{name}"
            program.write_text(f'#!/bin/sh\nexec {sys.executable} -m {module} "$@"\n')
            program.chmod(0o755)
        packages = [str(ROOT / name) for name in ("dflash", "watchdog", "tui")]
        self.environment = {
            **os.environ,
            "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join(packages),
            "XDG_STATE_HOME": str(folder / "state"),
            "OMP_NUM_THREADS": "1",
        }

    def start(self, line: str, name: str) -> Path:
        """Type a line; the file with what it prints."""
        said = self.folder / name
        with said.open("wb") as out:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {line}"], cwd=self.folder, env=self.environment,
                stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
            )  # fmt: skip
        self._started.append(process)
        return said

    def answer(self, line: str) -> str:
        """Type a line and wait for its end."""
        shown = subprocess.run(
            ["bash", "-c", line], cwd=self.folder, env=self.environment, text=True, check=False,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            timeout=DEADLINE_S,
        )  # fmt: skip
        return shown.stdout

    def end(self) -> None:
        for process in self._started:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    made = Desk(tmp_path_factory.mktemp("desk"))
    try:
        loop = ROOT / "tests" / "e2e" / "scripts" / "plain_loop.py"
        made.start(f"{sys.executable} {loop} --steps 100000 --step-s 0.05", "run.log")
        made.start(f"dflash-train --preset tiny --no-watch --run-dir runs/a {DEADLOCK}", "a.txt")
        until((made.folder / "runs/a/run.json").exists, "the run's beginning")
        watched = made.start(WATCHING, "watched.txt")
        until(lambda: "kept:" in watched.read_text(), f"an incident: {watched.read_text()}")
        (made.folder / "incidents").symlink_to(made.folder / "state/dflash-watch/incidents")
        yield made
    finally:
        made.end()


def shape(line: str) -> str:
    """The beginning of a line, every number as one 0."""
    return re.sub(r"\d+(?:\.\d+)?", "0", line)[:12].rstrip()


@pytest.mark.parametrize("one", SESSIONS, ids=lambda one: one.line)
def test_a_session_of_the_page_goes_as_shown(desk: Desk, one: Given):
    incident = next((desk.folder / "incidents").glob("*-pipeline-deadlock")).name
    line = STAMP.sub(STAMP.match(incident)[0], one.line)
    said = (desk.folder / "watched.txt").read_text() if line == WATCHING else desk.answer(line)
    assert said, line
    assert shape(said.splitlines()[0]) == shape(one.answer), said
    assert "Traceback (most recent" not in said


def test_the_page_shows_sessions():
    assert len(SESSIONS) >= 9
    assert WATCHING in [one.line for one in SESSIONS]
