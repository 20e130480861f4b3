"""Healthy runs, start to finish, through sshd, pct and container: nothing may be alarmed."""

from __future__ import annotations

import pytest
from e2e.watched import Watch, Watched, until

pytestmark = [pytest.mark.e2e, pytest.mark.ssh, pytest.mark.lxc]


def check_calm(watch: Watch) -> None:
    told = watch.told()
    assert watch.verdicts() == ["initialising", "running", "finished"], told
    assert watch.incidents() == [], told
    assert {line["severity"] for line in watch.lines} == {"info"}, told


def test_a_healthy_run_is_initialising_running_finished_and_nothing_else(watched: Watched) -> None:
    run = watched.tiny("optim.steps=250")
    watch = watched.watch(run)
    watch.until_running()
    assert watched.strangers(), "the agent is not seen, so its absence later proves nothing"
    watch.until_verdict("finished")
    assert run.process.wait(60) == 0
    watch.goes_on(6)
    check_calm(watch)
    assert watch.lines[-1]["failure"] == "healthy"


def test_two_watchdogs_on_one_healthy_run_agree_and_neither_disturbs_the_other(
    watched: Watched,
) -> None:
    run = watched.tiny("optim.steps=250", watch=True)
    watch = watched.watch(run, "--until-end")
    assert watch.process.wait(240) == 0
    watch.stop()
    check_calm(watch)
    assert run.process.wait(60) == 0
    assert run.run_dir is not None
    assert not list((run.run_dir / "incidents").glob("*/verdict.json"))
    log = run.run_dir / "watch.log"
    until(lambda: "FINISHED" in log.read_text(), "the run's own watchdog sees its end")
    own = log.read_text()
    told = {line.split()[1] for line in own.splitlines()}
    assert "RUNNING" in told, own
    assert told.isdisjoint({"SLOW", "QUIET", "STALLED", "CRASHED", "BLIND", "found:"}), own


def test_a_healthy_foreign_script_with_nothing_but_a_log(watched: Watched) -> None:
    run = watched.foreign("slow_start.py", "--quiet-s", 4, "--steps", 150, "--step-s", 0.1)
    watch = watched.watch(run)
    watch.until_verdict("finished")
    assert run.process.wait(60) == 0
    watch.goes_on(6)
    check_calm(watch)
