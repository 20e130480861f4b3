"""A foreign run with a log, and the command line as a real process beside it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SCRIPTS = ROOT / "tests" / "e2e" / "scripts"
LONG_S = 60.0
FOLDERS = [str(ROOT / name) for name in ("dflash", "watchdog", "tui")]


def until(condition: Callable[[], object], what: str) -> object:
    """Wait for something that must come; the limit only ends a test that has failed."""
    end = time.monotonic() + LONG_S
    while not (value := condition()):
        assert time.monotonic() < end, f"never: {what}"
        time.sleep(0.02)
    return value


def is_gone(pid: int) -> bool:
    """No such process, or only its exit code is left."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except FileNotFoundError:
        return True


class Bench:
    """Starts foreign programs and the command line, and ends what a test left."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(FOLDERS),
            "XDG_STATE_HOME": str(folder / "state"),
        }
        self._started: list[subprocess.Popen] = []

    def run(self, script: str, *words: str) -> subprocess.Popen:
        """A foreign program with its output in `run.log`."""
        with (self.folder / "run.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, str(SCRIPTS / script), *words], stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, cwd=self.folder,
            )  # fmt: skip
        self._started.append(process)
        until(lambda: "step" in (self.folder / "run.log").read_text(), "the run's first step")
        return process

    def start(self, *words: str, stdout: int | None = subprocess.PIPE) -> subprocess.Popen:
        """`dflash-watch` with these words."""
        process = subprocess.Popen(
            [sys.executable, "-m", "dflash_watch.cli", *words], env=self.environment, text=True,
            stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.PIPE, cwd=self.folder,
        )  # fmt: skip
        self._started.append(process)
        return process

    def watch(self, *words: str) -> subprocess.CompletedProcess:
        """`dflash-watch` with these words, to its end."""
        process = self.start(*words)
        out, err = process.communicate(timeout=LONG_S)
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def at_work(self) -> list[int]:
        """Processes that the command line is or has started, whoever their parent is now."""
        mark = f"XDG_STATE_HOME={self.environment['XDG_STATE_HOME']}".encode()
        found = []
        for place in Path("/proc").glob("[0-9]*"):
            try:
                told = (place / "environ").read_bytes().split(b"\0")
            except OSError:  # it has ended, or is not ours
                continue
            if mark in told:
                found.append(int(place.name))
        return found

    def end(self) -> None:
        """Nothing of this test stays."""
        for process in self._started:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.communicate()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """Foreign programs and the command line."""
    made = Bench(tmp_path)
    yield made
    made.end()
