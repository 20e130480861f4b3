"""Real agents and real programs to watch; everything started is ended."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from watch.agent.driving import AgentProcess

TRAINER = """
import sys, time
step = 0
while True:
    step += 1
    print(f"step={step} loss={1 / step:.4f}", flush=True)
    time.sleep(0.05)
"""


@pytest.fixture
def agent() -> Iterator[Callable[..., AgentProcess]]:
    started: list[AgentProcess] = []

    def start(target: dict[str, Any], **options: Any) -> AgentProcess:
        started.append(AgentProcess(target, **options))
        return started[-1]

    yield start
    for each in started:
        each.kill()


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts a Python program from its text; its output goes where the test says."""
    started: list[subprocess.Popen[bytes]] = []

    def start(text: str = TRAINER, *arguments: str, **options: Any) -> subprocess.Popen[bytes]:
        script = tmp_path / options.pop("name", "train.py")
        script.write_text(text)
        options.setdefault("stdout", subprocess.DEVNULL)
        options.setdefault("stdin", subprocess.DEVNULL)
        command = [options.pop("python", sys.executable), str(script), *arguments]
        started.append(subprocess.Popen(command, **options))
        return started[-1]

    yield start
    for each in started:
        each.kill()
        each.wait(60)
        for stream in (each.stdin, each.stdout, each.stderr):
            if stream:
                stream.close()


@pytest.fixture
def trainer(program: Callable[..., Any], tmp_path: Path) -> subprocess.Popen[bytes]:
    """A foreign training script that writes `train.log`."""
    with (tmp_path / "train.log").open("wb") as log:
        process: subprocess.Popen[bytes] = program(TRAINER, stdout=log)
    return process
