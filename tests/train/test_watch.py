"""The watchdog beside a run is a sibling: its trouble is a line in the log."""

from __future__ import annotations

import logging
import os
import sys
import time

import pytest
from dflash_train.watch import NICENESS, Watchdog

SLEEPER = (sys.executable, "-c", "import time; print('watching', flush=True); time.sleep(60)")


@pytest.fixture
def sleeping(tmp_path):
    watchdog = Watchdog(tmp_path, SLEEPER)
    watchdog.start()
    process = watchdog._process
    yield watchdog
    process.kill()
    process.wait()


def test_it_runs_in_a_session_of_its_own_with_a_lower_priority(sleeping):
    pid = sleeping._process.pid
    assert os.getsid(pid) != os.getsid(0)
    assert os.getpriority(os.PRIO_PROCESS, pid) == NICENESS


def test_what_it_says_lies_in_the_run_directory(sleeping, tmp_path):
    until_s = time.monotonic() + 90
    while (tmp_path / "watch.log").read_text() != "watching\n":
        assert time.monotonic() < until_s
        time.sleep(0.02)


def test_it_is_left_to_see_the_end_of_the_run_and_said_nothing_about(sleeping, caplog):
    process = sleeping._process
    sleeping.leave()
    sleeping.look()
    assert process.poll() is None
    assert not caplog.records


def test_one_that_cannot_be_started_is_a_line_in_the_log(tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        watchdog = Watchdog(tmp_path, ("/nonexistent/watchdog",))
        watchdog.start()
        watchdog.look()
        watchdog.leave()
    assert len(caplog.records) == 1
    assert "no watchdog beside this run" in caplog.text


def test_one_that_ends_by_itself_is_told_once(tmp_path, caplog):
    watchdog = Watchdog(tmp_path, (sys.executable, "-c", "raise SystemExit(3)"))
    watchdog.start()
    watchdog._process.wait()
    with caplog.at_level(logging.WARNING):
        watchdog.look()
        watchdog.look()
    warnings = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert warnings == [f"the watchdog ended by itself (exit 3); see {tmp_path / 'watch.log'}"]
