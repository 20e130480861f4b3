"""Logs that mislead whoever reads them, over a run that is well: named, and nothing is alarmed."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest
from e2e.faults import measure
from e2e.recorded import log_samples, steps_shown
from e2e.watched import Watch, Watched

pytestmark = [pytest.mark.e2e, pytest.mark.ssh, pytest.mark.lxc]
IN_TMUX = """
tmux -f /dev/null new-session -d -s train -x 100 -y 30 /bin/sh
tmux send-keys -t train "$*" Enter
while tmux has-session -t train 2>/dev/null; do sleep 0.2; done
"""
BUFFERED = Path(__file__).with_name("block_buffered_tiny.py")


def check_running_all_along(watch: Watch) -> None:
    """From the first step on no verdict but `running`; no incident, nothing critical."""
    told = watch.told()
    assert watch.verdicts() in (["initialising", "running"], ["running"]), told
    assert watch.incidents() == [], told
    assert "critical" not in {line["severity"] for line in watch.lines}, told


def check_calm(watch: Watch) -> None:
    """From the first look to the end of a healthy run: nothing but progress."""
    told = watch.told()
    assert watch.verdicts()[-2:] == ["running", "finished"], told
    assert set(watch.verdicts()[:-2]) <= {"initialising"}, told
    assert watch.incidents() == [], told
    assert {line["severity"] for line in watch.lines} == {"info"}, told


def test_a_log_that_is_renamed_away_or_cut_is_log_moved_while_the_run_goes_on(
    watched: Watched,
) -> None:
    run = watched.tiny()
    assert run.run_dir is not None
    log, away = run.run_dir / "train.log", run.run_dir / "train.log.1"
    watch = watched.watch(run)
    watch.until_running()

    renamed_t = time.time()
    log.rename(away)
    line = watch.becomes("log-moved")
    measure("log renamed away", watch, "running", "log-moved", renamed_t)
    assert (line["verdict"], line["severity"], line["subject"]) == ("running", "warning", str(away))
    assert f"not {log}" in line["summary"]
    log.touch()  # as rotation does that creates the new file
    watch.goes_on(4)
    assert watch.lines[-1]["failure"] == "log-moved", watch.told()

    log.unlink()
    away.rename(log)
    watch.becomes("healthy")

    shown = len(steps_shown(watch.capture, "train.log"))
    shutil.copy(log, away)
    os.truncate(log, 0)
    line = watch.becomes("log-moved")
    assert (line["verdict"], line["severity"], line["subject"]) == ("running", "warning", str(log))
    assert "cut" in line["summary"]
    watch.goes_on(6)
    later = steps_shown(watch.capture, "train.log")
    assert len(later) > shown, "what is written after the cut is not read"
    assert later == sorted(set(later)), "a line was read twice"
    check_running_all_along(watch)


def test_a_run_whose_log_waits_in_a_buffer_is_running_and_its_log_not_flushed(
    watched: Watched,
) -> None:
    run = watched.tiny("report.every_steps=20", program=[watched.give(BUFFERED)])
    assert run.run_dir is not None
    watch = watched.watch(run)
    watch.until_running()
    line = watch.until_verdict("running", "log-not-flushed")
    assert (line["severity"], line["subject"]) == ("warning", str(run.run_dir / "train.log"))
    watch.goes_on(15)
    check_running_all_along(watch)


def test_a_foreign_script_whose_lines_come_in_blocks_is_never_alarmed(watched: Watched) -> None:
    run = watched.foreign("block_buffered.py", "--flush-until", 60, "--step-s", 0.1)
    watch = watched.watch(run)
    watch.until_running()
    line = watch.until(lambda line: line["failure"] == "log-not-flushed", "its name")
    assert line["verdict"] in ("running", "quiet")
    watch.goes_on(30)
    told = watch.told()
    assert {line["verdict"] for line in watch.lines} <= {"initialising", "running", "quiet"}, told
    assert {line["failure"] for line in watch.lines} <= {
        "unknown", "loading", "healthy", "log-not-flushed",
    }, told  # fmt: skip
    assert watch.incidents() == [], told


def test_a_run_that_shows_nothing_but_a_bar_is_running_and_its_log_has_no_newline(
    watched: Watched,
) -> None:
    run = watched.foreign("progress_bar_only.py", "--steps", 100_000)
    watch = watched.watch(run)
    line = watch.until_verdict("running", "log-no-newline")
    assert (line["severity"], line["subject"]) == ("info", str(run.log))
    watch.goes_on(6)
    check_running_all_along(watch)


def test_a_log_behind_a_pipe_to_tee_is_found_and_read(watched: Watched) -> None:
    run = watched.foreign(
        "plain_loop.py", "--steps", 150, "--step-s", 0.1, shell='"$@" | tee "$0/teed.log"'
    )
    watch = watched.watch(run)
    watch.until_running()
    watch.until_verdict("finished")
    check_calm(watch)
    behind = log_samples(watch.capture, "teed.log")
    assert behind[0]["via"].startswith("pipe -> tee(")
    assert steps_shown(watch.capture, "teed.log")[-1] == 150


def test_a_log_in_a_tmux_pane_is_read_from_the_pane(watched: Watched) -> None:
    run = watched.foreign("plain_loop.py", "--steps", 200, "--step-s", 0.1, shell=IN_TMUX)
    try:
        watch = watched.watch(None, "--tmux", "train")
        watch.until_running()
        watch.until_verdict("finished")
    finally:
        watched.container.run(["tmux", "kill-server"])
    assert run.process.wait(60) == 0
    check_calm(watch)
    pane = [one for one in log_samples(watch.capture, "") if one["via"].startswith("tmux %")]
    assert {one["path"].rpartition("/")[0] for one in pane} == {"/dev/pts"}
    steps = steps_shown(watch.capture, pane[0]["path"])
    assert steps == sorted(set(steps)), "a line was read twice"
    assert len(steps) > 50
