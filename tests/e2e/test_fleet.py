"""Three runs over three SSH connections in one process: all cut at once, each comes back alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from e2e.places.sshd import Sshd

ROOT = Path(__file__).resolve().parents[2]
LOOP = str(ROOT / "tests" / "e2e" / "scripts" / "plain_loop.py")
NAMES = ("a", "b", "c")


class Fleet:
    """The runs, the file, and the watcher's lines as they come."""

    def __init__(self, sshd: Sshd, folder: Path) -> None:
        self.sshd, self.folder = sshd, folder
        self.runs: dict[str, subprocess.Popen[bytes]] = {}
        tables = [f'ssh-config = "{sshd.ssh_config}"\nhost = "box"\nincidents = "kept"\n']
        for name in NAMES:
            with (folder / f"{name}.log").open("wb") as log:
                argv = [sys.executable, LOOP, "--steps", "100000", "--step-s", "0.1"]
                self.runs[name] = subprocess.Popen(argv, stdout=log, stderr=log)
            tables.append(
                f'[[run]]\nname = "{name}"\npid = {self.runs[name].pid}\nrecord = "{name}.jsonl"\n'
            )
        (folder / "fleet.toml").write_text("".join(tables))
        paths = [str(ROOT / one) for one in ("dflash", "watchdog", "tui")]
        environment = {
            **os.environ, "PYTHONPATH": os.pathsep.join(paths),
            "XDG_STATE_HOME": str(folder / "state"),
        }  # fmt: skip
        argv = [sys.executable, "-m", "dflash_watch.cli", "fleet", "--json", "fleet.toml"]
        self.watch = subprocess.Popen(
            argv, cwd=folder, env=environment, text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def until(self, verdict: str, *names: str) -> dict[str, dict]:
        """Lines in which this is said of each."""
        found: dict[str, dict] = {}
        assert self.watch.stdout is not None
        for line in self.watch.stdout:
            one = json.loads(line)
            if one["verdict"] == verdict and one["name"] in names:
                found[one["name"]] = one
            if set(found) == set(names):
                return found
        raise AssertionError(f"never {verdict}: {names}")

    def connections(self) -> int:
        """TCP connections of the watcher to sshd."""
        own = psutil.Process(self.watch.pid).net_connections("tcp")
        return sum(one.raddr != () and one.raddr.port == self.sshd.port for one in own)

    def frames(self, name: str) -> list[float]:
        """Moments of all recorded frames of a run."""
        text = (self.folder / f"{name}.jsonl").read_text()
        told = [json.loads(line) for line in text.splitlines()]
        return [one["t"] for one in told if one["type"] == "frame"]

    def end(self) -> None:
        """Nothing stays."""
        for process in (self.watch, *self.runs.values()):
            process.kill()
            process.communicate()


@pytest.fixture
def fleet(sshd: Sshd, tmp_path: Path) -> Iterator[Fleet]:
    made = Fleet(sshd, tmp_path)
    yield made
    made.end()


def test_what_is_cut_is_blind_with_its_reason_and_comes_back_while_the_rest_is_told(fleet: Fleet):
    running = fleet.until("running", *NAMES)
    assert {one["where"] for one in running.values()} == {"box"}
    assert fleet.connections() == 3
    fleet.sshd.down()
    lost = fleet.until("blind", *NAMES)
    assert {one["failure"] for one in lost.values()} == {"watch-lost"}
    fleet.sshd.up()
    fleet.until("running", *NAMES)
    assert fleet.connections() == 3
    fleet.watch.send_signal(signal.SIGTERM)
    out, _ = fleet.watch.communicate(timeout=60)
    assert fleet.watch.returncode == 0
    assert {json.loads(line)["verdict"] for line in out.splitlines()} <= {"running"}
    for name in NAMES:
        moments = fleet.frames(name)
        assert moments == sorted(set(moments)), "no frame is counted twice"
    journal = (fleet.folder / "kept" / "journal.jsonl").read_text().splitlines()
    told = [(one["run"], one["action"], one["outcome"]) for one in map(json.loads, journal)]
    for name in NAMES:
        assert told.count((name, "connect", "connected")) == 2
        assert told.count((name, "agent", "started")) == 2
        assert told.count((name, "link", "lost")) >= 1
