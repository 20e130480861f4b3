"""Real processes that wait for something outside of them, watched by the real command."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "tests/e2e/scripts/waiting_loop.py"
DEADLINE_S = 400.0
"""Ends a test that has failed; on a calm machine it takes half a minute."""
PY_SPY = shutil.which("py-spy", path=str(Path(sys.executable).parent)) or shutil.which("py-spy")
EXPECTED = {
    "forked-lock": ("fork-after-threads", "made by fork"),
    "lock-file": ("file-lock-wait", "waits for a lock file"),
    "full-pipe": ("logger-blocked", "output that nobody takes"),
    "dead-worker": ("dataloader-worker-died", "ended by signal 9"),
}


@contextlib.contextmanager
def ended(words: list[str], **how: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A process with a group of its own, all of it gone afterwards."""
    process = subprocess.Popen(words, start_new_session=True, stdin=subprocess.DEVNULL, **how)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextlib.contextmanager
def watched(fault: str, folder: Path) -> Iterator[Path]:
    """The script and its watcher; the file that the watcher's lines go to."""
    folder.mkdir()
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(str(ROOT / one) for one in ("dflash", "watchdog", "tui")),
        "XDG_STATE_HOME": str(folder / "state"),
    }
    log, lines = folder / "out.log", folder / "lines.jsonl"
    # Steps for 20 s: a watcher that starts late has to see some, or it waits for its start limit.
    script = [sys.executable, str(SCRIPT), "--fault", fault, "--steps", "200"]
    with log.open("wb") as out, ended(script, stdout=out, stderr=out) as run:
        watch = [sys.executable, "-m", "dflash_watch.cli", "--pid", str(run.pid), "--json"]
        with lines.open("wb") as told, ended(watch, stdout=told, env=environment):
            yield lines


def said(lines: Path) -> list[dict[str, Any]]:
    whole = lines.read_text().splitlines(keepends=True)
    return [json.loads(line) for line in whole if line.endswith("\n")]


@pytest.mark.skipif(PY_SPY is None, reason="py-spy is not installed")
def test_each_wait_is_named_by_what_is_waited_for(tmp_path: Path) -> None:
    with contextlib.ExitStack() as all_of_them:
        files = {
            fault: all_of_them.enter_context(watched(fault, tmp_path / fault)) for fault in EXPECTED
        }
        end_s = time.monotonic() + DEADLINE_S
        left = set(files)
        while left and time.monotonic() < end_s:
            time.sleep(0.5)
            left -= {one for one in left if any(is_named(one, line) for line in said(files[one]))}
        assert not left, {one: said(files[one])[-1:] for one in left}


def is_named(fault: str, line: dict[str, Any]) -> bool:
    failure, words = EXPECTED[fault]
    return (line["verdict"], line["failure"]) == ("stalled", failure) and words in line["summary"]
