"""Ranks of a launcher: who leads, who is sampled, who is named when one of them fails."""

from __future__ import annotations

import pytest
from dflash_watch.census import other_pids
from dflash_watch.detectors import loader_worker_gone, process_in_stop
from dflash_watch.detectors.examples import PID, build_view, example, frames, log, process
from dflash_watch.engine import Engine
from dflash_watch.frame import ProcessSample, RunSample
from dflash_watch.model import RunOptions, Verdict
from dflash_watch.playbooks import load_playbooks
from dflash_watch.readers.launcherword import first_failure
from dflash_watch.window.crew import called, leaders

LAUNCHER, RANKS, WORKERS = PID, (11, 12), (21, 22, 31, 32)
SUMMARY = """\
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train_ddp.py FAILED
------------------------------------------------------------
Failures:
[1]:
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 13201)  (SIGTERM)
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-30_00:27:14
  host      : localhost
  rank      : 1 (local_rank: 1)
  exitcode  : -9 (pid: 13203)  (SIGKILL)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 13203
"""


def crew(i: int, gone: tuple[int, ...] = (), **changes: object) -> tuple[ProcessSample, ...]:
    """A launcher, two ranks, two loader workers of each; `changes` are of the workers."""
    ranks = [process(i, pid=pid, ppid=LAUNCHER, rank=k) for k, pid in enumerate(RANKS)]
    workers = [
        process(i, pid=pid, ppid=RANKS[k // 2], rank=k // 2, start_ticks=600, **changes)
        for k, pid in enumerate(WORKERS)
    ]
    every = [process(i, cpu_ticks=1), *workers, *ranks]
    return tuple(one for one in every if one.pid not in gone)


def test_the_leader_of_a_rank_is_its_eldest_process_not_a_worker_of_its_loader():
    view = build_view(example(frames(3, processes=crew)))
    assert {rank: one.sample.pid for rank, one in leaders(view.window.tracks).items()} == {
        0: 11,
        1: 12,
    }
    assert view.window.main_pid() == 11
    assert called(view.window.tracks, 12) == "rank-1 (process 12)"
    assert called(view.window.tracks, 31) == "process 31 of rank-1"
    assert called(view.window.tracks, LAUNCHER) == f"process {LAUNCHER}"


def test_stacks_are_taken_of_the_ranks_before_the_workers_of_their_loaders():
    view = build_view(example(frames(3, processes=crew)))
    assert other_pids(view.window)[0] == 12
    assert set(other_pids(view.window)[1:]) <= {LAUNCHER, *WORKERS}


def test_a_loader_worker_of_any_rank_that_was_killed_is_named():
    def killed(i: int) -> tuple[ProcessSample, ...]:
        return tuple(
            process(i, pid=31, ppid=12, rank=1, start_ticks=600, state="Z", exit_code=9)
            if one.pid == 31
            else one
            for one in crew(i)
        )

    view = build_view(example(frames(4, processes=killed)))
    (found,) = loader_worker_gone.DETECTOR.detect(view, loader_worker_gone.DETECTOR.params)
    assert (found.subject, found.summary) == (
        "process 31",
        "process 31, a child of the run, ended by signal 9",
    )


def test_a_stopped_rank_is_called_by_its_rank():
    def stopped(i: int) -> tuple[ProcessSample, ...]:
        return tuple(
            process(i, pid=12, ppid=LAUNCHER, rank=1, state="T") if one.pid == 12 else one
            for one in crew(i)
        )

    view = build_view(example(frames(8, processes=stopped)))
    (found,) = process_in_stop.DETECTOR.detect(view, process_in_stop.DETECTOR.params)
    assert found.summary.startswith("rank-1 (process 12) is in state T")


def test_orphans_that_end_well_after_a_crash_do_not_make_it_a_success():
    engine = Engine(RunOptions(), load_playbooks())
    dead = (LAUNCHER, *RANKS, 21, 22)
    gone = RunSample(state="gone", how="pid", root_pid=LAUNCHER, root_start_ticks=500, gone_s=3.0)
    story = (
        *frames(14, processes=crew, logs=lambda i: log(f"step {i}/900\n")),
        *frames(1, start=14, processes=crew, logs=log(SUMMARY)),
        *frames(2, start=15, processes=lambda i: crew(i, dead), run=gone),
        *frames(3, start=17, processes=lambda i: crew(i, dead, state="Z", exit_code=0), run=gone),
    )
    verdicts = {engine.advance(record).verdict for record in story}
    snapshot = engine.advance(frames(1, start=20, processes=(), run=gone)[0])
    assert Verdict.FINISHED not in verdicts
    assert snapshot.verdict == Verdict.CRASHED
    assert "rank-1 (process 13203) ended first, by signal 9" in snapshot.summary


def test_the_launchers_summary_names_the_rank_that_failed_first():
    first = first_failure(SUMMARY.splitlines())
    assert first is not None
    assert (first.rank, first.code, first.pid) == (1, -9, 13203)


@pytest.mark.parametrize("cut", [0, 5, 10, 13])
def test_a_summary_that_is_not_whole_names_nobody(cut):
    assert first_failure(SUMMARY.splitlines()[:cut]) is None
