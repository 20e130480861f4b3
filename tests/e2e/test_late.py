"""Whoever looks comes late: the run hung, died or ended before anybody watched it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from e2e.faults import check_kept, check_quiet_afterwards
from e2e.watched import PACKAGES, Run, Watched, until

pytestmark = [pytest.mark.e2e, pytest.mark.ssh, pytest.mark.lxc]
SILENT_S = 12.0


def be_silent(run: Run) -> None:
    """Until its log has said nothing for a while."""
    until(lambda: time.time() - run.last_word_t() > SILENT_S, "silence")


def check(watched: Watched, run: Run) -> tuple[int, str, str]:
    """Exit code, verdict and failure of one `dflash-watch check`."""
    argv = [sys.executable, "-m", "dflash_watch.cli", "check", "--json", "--host", "box"]
    argv += ["--ct", watched.container.id, "--ssh-config", watched.proxmox.sshd.ssh_config]
    done = subprocess.run(
        [*argv, *run.words()], env={**os.environ, "PYTHONPATH": os.pathsep.join(PACKAGES)},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.stdout, done.stderr
    told = json.loads(done.stdout)
    return done.returncode, told["verdict"], told["failure"]


def test_a_deadlock_from_before_the_watching_is_named_by_one_look_and_by_watching(
    watched: Watched,
) -> None:
    run = watched.tiny("drill.fault=lock-cycle", "drill.at_step=10")
    run.says("step=10/")
    be_silent(run)
    assert check(watched, run) == (2, "stalled", "pipeline-deadlock")
    watch = watched.watch(run)
    kept = watch.until_kept("pipeline-deadlock")
    check_kept(kept, "stalled", "pipeline-deadlock", "drafter-0, drafter-1", samples=3)
    assert watch.verdicts() == ["stalled"], watch.told()
    check_quiet_afterwards(watch, [kept])


def test_a_foreign_deadlock_from_before_the_watching_is_found_in_its_stacks(
    watched: Watched,
) -> None:
    run = watched.foreign("lock_cycle.py", "--at-step", 20)
    run.says("step 18 ")
    be_silent(run)
    watch = watched.watch(run)
    kept = watch.until_kept("pipeline-deadlock")
    check_kept(kept, "stalled", "pipeline-deadlock", "drafter-0, drafter-1", samples=3)
    check_quiet_afterwards(watch, [kept])


def test_runs_that_were_over_before_anybody_looked_say_how_they_ended(watched: Watched) -> None:
    done = watched.tiny("optim.steps=3")
    killed = watched.tiny()
    assert done.process.wait(150) == 0
    killed.says("step=2/")
    killed.signal(signal.SIGKILL)
    killed.process.wait(60)
    assert check(watched, done) == (0, "finished", "healthy")
    assert check(watched, killed) == (2, "crashed", "main-process-died")
