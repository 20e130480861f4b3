"""A healthy script with nothing but a log, on a machine whose every core is taken: no alarm."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
from e2e.watched import SCRIPTS, Watched

pytestmark = [pytest.mark.e2e, pytest.mark.ssh, pytest.mark.lxc]


@pytest.fixture
def busy_machine() -> Iterator[None]:
    """Two spinning processes a core."""
    words = [sys.executable, str(SCRIPTS / "busy_machine.py"), "--seconds", "280"]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL) as spinning:
        yield
        spinning.terminate()


@pytest.mark.usefixtures("busy_machine")
def test_a_healthy_foreign_script_on_a_busy_machine_is_never_alarmed(watched: Watched) -> None:
    run = watched.foreign("plain_loop.py", "--steps", 250, "--step-s", 0.1, "--busy-ratio", 0.6)
    watch = watched.watch(run)
    watch.until_verdict("finished")
    assert run.process.wait(60) == 0
    watch.goes_on(5)
    told = watch.told()
    assert {line["verdict"] for line in watch.lines} <= {"initialising", "running", "finished"}, (
        told
    )
    assert {line["severity"] for line in watch.lines} == {"info"}, told
    assert watch.incidents() == [], told
