"""A driver that gives no view, from the library to the line a person reads: each cause its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_nvml import FakeNvml

ROOT = Path(__file__).parents[3]
LOOP = """
import time
for step in range(1, 100000):
    print(f"step={step}/100000 loss=1.0", flush=True)
    time.sleep(0.1)
"""


@pytest.fixture
def loop(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    with (tmp_path / "train.log").open("wb") as log:
        run = subprocess.Popen([sys.executable, "-u", "-c", LOOP], stdout=log, stderr=log)
    yield run
    run.kill()
    run.wait()


def check(run: subprocess.Popen[bytes], nvml: FakeNvml, home: Path) -> dict[str, Any]:
    path = os.pathsep.join(str(ROOT / name) for name in ("dflash", "watchdog", "tui"))
    environment = nvml.environment({**os.environ, "PYTHONPATH": path, "XDG_STATE_HOME": str(home)})
    done = subprocess.run(
        [sys.executable, "-m", "dflash_watch.cli", "check", "--pid", str(run.pid), "--json"],
        env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.stdout, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


@pytest.mark.parametrize(
    ("code", "says", "does"),
    [
        (4, "no permission", "watch as a user who may open them"),
        (15, "fell off the bus", "dmesg --ctime"),
        (18, "version mismatch", "leave running jobs alone"),
        (999, "unknown error", "daemon-reload"),
    ],
)
def test_each_refusal_of_the_driver_has_its_own_sentence_and_next_step(
    loop, fake_nvml, tmp_path, code, says, does
):
    fake_nvml.init_error(code)
    told = check(loop, fake_nvml, tmp_path)
    assert says in told["views"]["gpu"]
    assert (told["verdict"], told["failure"]) == ("running", "gpu-view-lost")
    assert says in told["summary"]
    assert does in told["next"][0] + told["next"][1]


def test_no_driver_at_all_is_said_and_alarms_nobody(loop, fake_nvml, tmp_path):
    fake_nvml.init_error(9)
    told = check(loop, fake_nvml, tmp_path)
    assert (told["verdict"], told["failure"]) == ("running", "healthy")
    assert "driver is not loaded" in told["views"]["gpu"]
