"""The engine beside the dashboard, as a real process."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
LONG_S = 60.0
# A process that opens an engine with a wrong command line and waits as a dashboard would.
DASHBOARD = """
import os, signal, sys, threading
from dflash_watch.publish import EngineProcess
ended = threading.Event()
with EngineProcess(sys.argv[1:], os.environ) as engine:
    with engine.ending_this_process():
        signal.signal(signal.SIGTERM, lambda *_: ended.set())
        print("told" if ended.wait(60) else "not told")
print(engine.code)
sys.stderr.write(engine.complaint)
"""


@pytest.fixture
def environment():
    folders = [str(ROOT / name) for name in ("dflash", "watchdog", "tui")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}


def test_an_engine_that_refuses_its_words_ends_the_dashboard_and_is_heard(environment):
    shown = subprocess.run(
        [sys.executable, "-c", DASHBOARD, "--zzz"], env=environment, text=True,
        capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert shown.stdout.split("\n")[:2] == ["told", "64"]
    assert shown.stderr.startswith("dflash-watch: unknown option --zzz")


def test_a_module_in_the_current_folder_cannot_stand_in_for_one_of_ours(environment, tmp_path):
    (tmp_path / "queue.py").write_text("raise SystemExit('the wrong queue')")
    shown = subprocess.run(
        [sys.executable, "-P", "-c", DASHBOARD, "--zzz"], env=environment, text=True,
        cwd=tmp_path, capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert "wrong queue" not in shown.stderr
    assert "unknown option --zzz" in shown.stderr


def test_an_engine_that_is_killed_is_named_and_the_exit_code_says_cannot_tell(environment):
    killed = DASHBOARD.replace(
        'print("told"', 'os.kill(engine._process.pid, signal.SIGKILL); print("told"'
    )
    shown = subprocess.run(
        [sys.executable, "-c", killed, "--pid", str(os.getpid())], env=environment, text=True,
        capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert shown.stdout.split("\n")[:2] == ["told", "3"]
    assert "the engine of the dashboard was ended by SIGKILL" in shown.stderr


WAITING = """
import os, sys, time
from dflash_watch.publish import EngineProcess
with EngineProcess(sys.argv[1:], os.environ) as engine:
    first = engine.link.makefile("rb").readline()
    print(engine._process.pid, flush=True)
    time.sleep(1000)
"""


def test_an_engine_whose_dashboard_was_killed_ends_by_itself(environment, tmp_path):
    environment = {**environment, "XDG_STATE_HOME": str(tmp_path)}
    dashboard = subprocess.Popen(
        [sys.executable, "-c", WAITING, "--pid", str(os.getpid())], env=environment,
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    engine = int(dashboard.stdout.readline())
    assert Path(f"/proc/{engine}").exists()
    dashboard.kill()
    dashboard.communicate()
    end = time.monotonic() + LONG_S
    while Path(f"/proc/{engine}").exists() and "\nState:\tZ" not in status(engine):
        assert time.monotonic() < end, "the engine outlived its dashboard"
        time.sleep(0.05)


def status(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return ""
