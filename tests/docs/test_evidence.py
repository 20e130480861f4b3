"""The commands of docs/evidence.md make evidence that the readers read, on a real process."""

from __future__ import annotations

import os
import pickle
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from dflash_watch.readers.flightrecorder import parse_flight_recorder
from dflash_watch.readers.pstext import parse_ps
from dflash_watch.readers.stackparse import parse_dumps

PAGE = (Path(__file__).parents[2] / "docs" / "evidence.md").read_text("utf-8")
COMMANDS = [
    line for block in re.findall(r"(?ms)^```\n(.*?)^```", PAGE) for line in block.splitlines()
]
SLEEPER = """
import faulthandler, signal, threading, time
def rests():
    time.sleep(1000)
threading.Thread(target=rests, name="rests", daemon=True).start()
faulthandler.register(signal.SIGUSR1, all_threads=True)
print("up", flush=True)
time.sleep(1000)
"""
WAIT_S = 120


@pytest.fixture(scope="module")
def pid(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    script = tmp_path_factory.mktemp("run") / "train.py"
    script.write_text(SLEEPER)
    process = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    deadline = time.monotonic() + WAIT_S
    while len(list(Path(f"/proc/{process.pid}/task").iterdir())) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    yield process.pid
    process.kill()
    process.communicate()


def made(command: str, pid: int, folder: Path) -> str:
    """What the command wrote, its PID filled in; a tool beside this Python is found."""
    path = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
    filled = command.replace("PID", str(pid))
    done = subprocess.run(
        ["bash", "-c", filled], cwd=folder, env={"PATH": path, "HOME": str(folder)},
        capture_output=True, text=True, timeout=WAIT_S, check=False,
    )  # fmt: skip
    if re.search(r"(?i)not permitted|permission denied|ptrace", done.stderr) and os.geteuid():
        pytest.skip(f"only root may do this here: {done.stderr.splitlines()[0][:80]}")
    assert done.returncode == 0, done.stderr
    return (folder / filled.rpartition("> ")[2]).read_text("utf-8")


def of(*starts: str) -> list[str]:
    found = [line for line in COMMANDS if line.startswith(starts)]
    assert found
    return found


def needs(tool: str) -> None:
    path = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
    if shutil.which(tool, path=path) is None:
        pytest.skip(f"{tool} is not installed here")


@pytest.mark.parametrize("command", of("py-spy", "pystack", "gdb", "head"))
def test_stacks_taken_as_the_page_says_are_read(command: str, pid: int, tmp_path: Path) -> None:
    needs(command.split(maxsplit=1)[0])
    text = made(command, pid, tmp_path)
    samples = parse_dumps(text).samples
    if "py-bt" in command and "File" not in text:
        pytest.skip("gdb found no script of this Python here")
    assert len(samples) == 1
    assert {thread.tid for thread in samples[0].threads} >= {pid}
    assert len(samples[0].threads) == 2
    if not command.startswith("head"):
        functions = {f.name.rpartition(".")[2] for t in samples[0].threads for f in t.frames}
        assert functions & {"rests", "clock_nanosleep", "__GI___clock_nanosleep"}


@pytest.mark.parametrize("command", of("ps", "top"))
def test_processes_listed_as_the_page_says_are_read(command: str, pid: int, tmp_path: Path) -> None:
    needs(command.split(maxsplit=1)[0])
    rows = parse_ps(made(command, pid, tmp_path)).rows
    assert [row for row in rows if pid in (row.pid, row.tid)]
    assert all(row.command for row in rows)


def test_a_pickle_is_converted_as_the_page_and_the_reader_say(pid: int, tmp_path: Path) -> None:
    (command,) = of("python -c")
    recorded = {"pg_status": {"0": {"last_enqueued_collective": 6, "last_completed_collective": 5}}}
    (tmp_path / "FILE").write_bytes(pickle.dumps({"entries": [], **recorded}))
    refused = parse_flight_recorder((tmp_path / "FILE").read_bytes().decode("latin-1"))
    assert refused.note is not None
    assert command in refused.note
    text = made(command.replace("python ", f"{sys.executable} ", 1), pid, tmp_path)
    assert parse_flight_recorder(text, rank=1).ranks[0].enqueued == 6


def test_every_other_command_of_the_page_is_one_of_nvidia_smi() -> None:
    """Whose output no machine without such a card can make: recorded in test_gputext."""
    tested = ("py-spy", "pystack", "gdb", "head", "ps", "top", "python -c", "dflash-watch")
    assert {line.split()[0] for line in COMMANDS if not line.startswith(tested)} == {"nvidia-smi"}
