"""A run small enough to make often: few documents, short blocks, a target that learns nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from dflash_train import logs
from dflash_train.config import Config
from dflash_train.settings import resolve
from dflash_train.stop import SIGNALS

ROOT = Path(__file__).resolve().parents[2]

SMALL = (
    "target.pretrain_steps=2",
    "data.num_documents=64",
    "data.rows=2",
    "optim.steps=12",
    "loss.num_anchors=6",
    "report.every_steps=4",
    "checkpoint.every_steps=5",
)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Other builds use the same cores; and a run must not depend on how many there are."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def _signals_as_before() -> Iterator[None]:
    """A run takes some signals over; give them back."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(autouse=True)
def _log_closed() -> Iterator[None]:
    """A run leaves its log open for the end of the process."""
    yield
    logs.close_log()


@pytest.fixture
def small() -> Config:
    """The configuration of `SMALL`."""
    return resolve("tiny", None, SMALL)


class Command:
    """`dflash-train` as a process of its own."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir

    def start(self, *words: str) -> subprocess.Popen[str]:
        return self._start(["-m", "dflash_train.cli"], words)

    def torchrun(self, *words: str) -> subprocess.Popen[str]:
        """Two processes under torchrun itself."""
        head = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone"]
        settings = ("--preset", "tiny", "--no-watch", *SMALL, *words)
        return self._start([*head, "-m", "dflash_train.cli"], settings)

    def _start(self, head: list[str], words: tuple[str, ...]) -> subprocess.Popen[str]:
        paths = os.pathsep.join(str(ROOT / name) for name in ("dflash", "watchdog", "tui"))
        return subprocess.Popen(
            [sys.executable, *head, *words, "--run-dir", str(self.run_dir)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        )

    def train(self, *settings: str) -> subprocess.Popen[str]:
        return self.start("--preset", "tiny", "--no-watch", *SMALL, *settings)

    def resume(self, *settings: str) -> subprocess.Popen[str]:
        return self.start("resume", "--no-watch", *settings)


@pytest.fixture
def command(tmp_path: Path) -> Command:
    """A command over a fresh run directory."""
    return Command(tmp_path / "run")


@pytest.fixture
def started():
    """Processes that are ended whatever the test did."""
    processes = []
    yield lambda process: processes.append(process) or process
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.communicate()
