"""A watcher takes the place of one that ended: what was known counts until it is disproved."""

import msgspec
import pytest
from dflash_watch.engine import Engine
from dflash_watch.limits import LearnedLimits
from dflash_watch.model import IncidentStage, Verdict
from dflash_watch.remembered import Remembered
from scenarios.endings import failed_in_our_trainer
from scenarios.timeline import Timeline, playbooks


def another_watcher(run: Timeline, away_s: float = 180.0) -> None:
    """The engine ends; after a while another one begins with what the first one left."""
    left = msgspec.json.encode(run.engine.remembered)
    limits = LearnedLimits.from_data(run.engine.limits.to_data())
    run.unseen(away_s, ticks=False)
    run.engine = Engine(
        run.options, playbooks(), limits=limits,
        remembered=msgspec.json.decode(left, type=Remembered | None),
    )  # fmt: skip
    run.snapshots.clear()
    run._manifest_due = True
    run.hello()


def deadlocked() -> Timeline:
    run = Timeline.training()
    run.freeze()
    run.wait("drafter-0", "lock", on="drafter-1", lock="grads")
    run.wait("drafter-1", "lock", on="drafter-0", lock="weights")
    run.go(40)
    return run


def told(run: Timeline) -> str:
    return " ".join(one.text for one in run.last.evidence)


def test_a_stall_goes_on_as_the_same_incident_from_the_first_look():
    run = deadlocked()
    before = run.last
    another_watcher(run)
    run.go(60)
    seen = [one for one in run.snapshots if one.data_t is not None]
    assert {one.verdict for one in seen} == {Verdict.STALLED}
    assert {one.incident.key for one in seen} == {before.incident.key}
    assert {one.incident.stage for one in seen} == {IncidentStage.CONFIRMED}
    assert run.last.since_t == pytest.approx(before.since_t, abs=1.0)
    assert run.last.failure == "pipeline-deadlock"


def test_the_time_that_nobody_saw_is_said_and_is_no_fact_about_the_run():
    run = Timeline.training()
    another_watcher(run, 180.0)
    run.go(5)
    assert "nothing was seen for 3 m 01 s before, no watcher ran" in told(run)
    (line,) = [one for one in run.last.board.findings if one.subject == "watcher"]
    assert line.closed_t - line.opened_t == pytest.approx(181.0)
    assert run.last.verdict is Verdict.RUNNING
    run.go(700)
    assert "no watcher ran" not in told(run)


def test_a_restart_that_nobody_could_notice_is_not_mentioned():
    run = Timeline.training()
    another_watcher(run, 2.0)
    run.go(5)
    assert "no watcher ran" not in told(run)
    assert not [one for one in run.last.board.findings if one.subject == "watcher"]


def test_a_run_that_came_back_while_nobody_looked_is_over_its_incident_with_its_first_steps():
    run = deadlocked()
    key = run.last.incident.key
    for worker in run.workers.values():
        worker.wait, worker.works = None, True
    run.steps_per_s, run.cores, run.log_mode = 12.0, 1.2, "lines"
    another_watcher(run)
    run.go(15)
    assert run.last.verdict is Verdict.RUNNING
    assert (run.last.incident.key, run.last.incident.stage) == (key, IncidentStage.RESOLVED)


def test_the_stall_teaches_the_next_watcher_nothing():
    run = deadlocked()
    another_watcher(run)
    run.go(5)
    for worker in run.workers.values():
        worker.wait, worker.works = None, True
    run.steps_per_s, run.cores, run.log_mode = 12.0, 1.2, "lines"
    run.go(30)
    assert run.last.verdict is Verdict.RUNNING
    assert max(run.engine.limits.to_data()["gaps"]["training"]) < 10.0


def test_what_was_known_of_another_run_is_dropped():
    run = deadlocked()
    run.restart()
    for worker in run.workers.values():
        worker.wait, worker.works = None, True
    run.steps_per_s, run.cores, run.log_mode = 12.0, 1.2, "lines"
    another_watcher(run)
    run.go(5)
    assert run.last.incident is None
    assert "no watcher ran" not in told(run)


def test_a_crash_that_was_kept_is_the_same_crash_when_its_run_is_gone():
    run = failed_in_our_trainer()
    key = run.last.incident.key
    another_watcher(run)
    run.go(20)
    assert {one.incident.key for one in run.snapshots if one.incident} == {key}


def test_blindness_changes_nothing_of_what_is_remembered():
    run = deadlocked()
    before = run.engine.remembered
    run.link("lost", "connection reset")
    run.unseen(60)
    assert run.last.verdict is Verdict.BLIND
    after = run.engine.remembered
    assert (after.verdict, after.incident, after.t) == (
        before.verdict, before.incident, before.t
    )  # fmt: skip


def test_before_the_run_is_met_nothing_is_left_that_would_replace_what_was_kept():
    run = deadlocked()
    another_watcher(run)
    assert run.engine.remembered is None
    run.link("lost", "no route")
    assert run.engine.remembered is None
