"""One root cause instead of many alarms, ranked by what the playbooks require."""

from __future__ import annotations

import re

import pytest
from dflash_watch.detectors.examples import beats, frames, stuck_after, worker
from dflash_watch.diagnosis import Diagnosis, diagnose, settling_look
from dflash_watch.engine import Engine
from dflash_watch.frame import RunSample
from dflash_watch.model import (
    Evidence,
    EvidenceKind,
    Inconclusive,
    RunOptions,
    Severity,
    Source,
    Symptom,
    Verdict,
)
from dflash_watch.playbooks import Playbook, load_playbooks
from dflash_watch.units import duration
from dflash_watch.unseen import gaps


def symptom(name: str, subject: str = "run", source: Source = Source.BEATS, *, starts: bool = True):
    text = f"{name} of {subject}"
    fact = Evidence(kind=EvidenceKind.FOR, text=text, source=source)
    return Symptom(
        name=name, subject=subject, severity=Severity.WARNING, since_t=5.0, summary=text,
        source=source, evidence=(fact,), starts=starts,
    )  # fmt: skip


def book(name: str, requires: list[str], severity: str = "critical", **more) -> Playbook:
    more.setdefault("verdicts", (Verdict.STALLED,))
    return Playbook(
        name=name, title=name, severity=Severity(severity), requires=tuple(requires), **more
    )


DEAD = book("worker-died", ["worker-failed"], supports=("work-still",),
            explains=("worker-not-taking", "log-silent", "drafter-idle"))  # fmt: skip
IDLE = book("drafter-idle", ["worker-not-taking"], explains=("log-silent",))
EITHER = book("gil-held", ["ticker-silent|gil-owner-fixed"])
BOOKS = {one.name: one for one in (DEAD, IDLE, EITHER)}


def find(*symptoms: Symptom, verdict: Verdict = Verdict.STALLED, books=BOOKS) -> Diagnosis:
    return diagnose(verdict, "why", None, symptoms, (), books)


def test_a_dead_worker_hides_the_idle_drafters_behind_it():
    found = find(
        symptom("worker-not-taking", "drafter-0"), symptom("worker-failed", "target-1"),
        symptom("log-silent"),
    )  # fmt: skip
    assert (found.failure, found.subject) == ("worker-died", "target-1")
    assert found.explains == ("worker-not-taking", "log-silent", "drafter-idle")


def test_without_the_dead_worker_the_idle_one_is_the_cause():
    found = find(symptom("worker-not-taking", "drafter-0"), symptom("log-silent"))
    assert (found.failure, found.subject) == ("drafter-idle", "drafter-0")


def test_either_of_two_symptoms_is_enough():
    assert find(symptom("gil-owner-fixed", "t")).failure == "gil-held"
    assert find(symptom("ticker-silent")).failure == "gil-held"


def test_a_playbook_of_another_verdict_is_no_candidate():
    found = find(symptom("worker-failed"), verdict=Verdict.QUIET)
    assert found.failure == "unknown"
    assert found.candidates == ()


def test_a_symptom_that_only_keeps_alive_names_nothing_but_stays_a_candidate():
    found = find(symptom("worker-failed", "target-1", starts=False))
    assert found.failure == "unknown"
    assert [one.failure for one in found.candidates] == ["worker-died"]


def test_contradiction_lowers_rank_and_confidence():
    doubted = book("drafter-idle", ["worker-not-taking"], contradicts=("wait-cycle",))
    cycle = book("pipeline-deadlock", ["wait-cycle"])
    books = {one.name: one for one in (doubted, cycle)}
    found = find(symptom("worker-not-taking", "d"), symptom("wait-cycle", "a, b"), books=books)
    assert found.failure == "pipeline-deadlock"
    scores = {one.failure: one.score for one in found.candidates}
    assert scores["pipeline-deadlock"] > scores["drafter-idle"]
    alone = find(symptom("worker-not-taking"), symptom("wait-cycle"), books={"x": doubted})
    assert alone.confidence == "low"
    assert [one.text for one in alone.evidence if one.kind == "against"] == ["wait-cycle of run"]


def test_two_sources_make_it_sure_and_one_does_not():
    one = find(symptom("worker-failed", "t"))
    two = find(symptom("worker-failed", "t"), symptom("work-still", source=Source.PROCESS))
    assert (one.confidence, two.confidence) == ("medium", "high")


def test_two_that_explain_each_other_leave_one():
    first = book("a", ["log-silent"], explains=("b",))
    second = book("b", ["log-silent"], severity="warning", explains=("a",))
    assert find(symptom("log-silent"), books={"a": first, "b": second}).failure == "a"


def test_nothing_that_fits_is_unknown_with_all_evidence_and_low_confidence():
    found = find(symptom("work-still"))
    assert (found.failure, found.confidence) == ("unknown", "low")
    assert found.summary == "why"
    assert [one.text for one in found.evidence] == ["work-still of run"]


@pytest.mark.parametrize(
    ("verdict", "source", "told"),
    [
        (Verdict.STALLED, Source.EVENTS, "the others wait for it"),
        (Verdict.CRASHED, Source.EVENTS, "the trainer stopped the others"),
        (Verdict.CRASHED, Source.LOG, "the run ended with it"),
        (Verdict.RUNNING, Source.EVENTS, "the trainer stops the others"),
        (Verdict.RUNNING, Source.LOG, "the others go on without it"),
    ],
)
def test_what_the_others_do_after_one_died_is_said_of_this_run(verdict, source, told):
    failed = symptom("worker-failed", "target-1", source)
    found = find(failed, verdict=verdict, books=load_playbooks())
    assert found.failure == "worker-died"
    assert found.summary == f"worker-failed of target-1; {told}"


def test_the_age_of_the_last_step_is_one_figure_wherever_it_is_told():
    engine = Engine(RunOptions(), load_playbooks())
    for stuck_s in (3.0, 40.0):  # seen for the first time, its last step lies before that
        (seen,) = frames(1, beats=beats(worker("drafter-0", stuck_s)))
        snapshot = Engine(RunOptions(), load_playbooks()).advance(seen)
        assert snapshot.board.last_step_age_s == stuck_s
        assert f"last step {duration(stuck_s)} ago" in snapshot.summary
    for seen in stuck_after(30, 30, lambda s: worker("drafter-0", s, step=30)):
        snapshot = engine.advance(seen)
        told = re.search(r"(?:last step|no step for) (\d[\d.]* (?:m \d\d )?s)", snapshot.summary)
        if told is not None:
            assert told.group(1) == duration(snapshot.board.last_step_age_s)


def test_what_is_left_out_of_a_silence_is_said_when_the_limit_seems_passed():
    engine = Engine(RunOptions(), load_playbooks())
    begun = frames(6, beats=lambda i: beats(worker("drafter-0", step=i + 1)))
    back = frames(2, start=305, beats=lambda i: beats(worker("drafter-0", i - 5.0, step=6)))
    for seen in (*begun, *back):
        snapshot = engine.advance(seen)
    assert snapshot.verdict is Verdict.RUNNING
    assert "last step 5 m 01 s ago (limit" in snapshot.summary
    assert " count, the rest is a known phase or was not seen)" in snapshot.summary


def unseen(*names: str) -> tuple[Inconclusive, ...]:
    return tuple(Inconclusive(name=one, subject="run", missing=f"sight of {one}") for one in names)


def missing_of(found: Diagnosis) -> list[str]:
    return [one.text for one in found.evidence if one.kind is EvidenceKind.MISSING]


def test_only_missing_evidence_that_bears_on_the_failure_is_listed():
    blanks = unseen("work-still", "throughput-low", "queue-blocked")
    found = diagnose(Verdict.STALLED, "why", None, (symptom("worker-failed", "t"),), blanks, BOOKS)
    assert missing_of(found) == ["sight of work-still"]


@pytest.mark.parametrize("verdict", [Verdict.RUNNING, Verdict.CRASHED, Verdict.FINISHED])
def test_a_run_that_gets_on_or_is_over_lacks_no_evidence(verdict):
    books = load_playbooks()
    blanks = unseen("work-still", "throughput-low", "log-silent", "wait-cycle")
    assert missing_of(diagnose(verdict, "why", None, (), blanks, books)) == []


def test_the_logs_of_silent_ranks_are_wanted_after_a_crash_too():
    logged = symptom("logged-collective-timeout", "rank-1")
    blanks = unseen("collective-late", "work-still")
    found = diagnose(Verdict.CRASHED, "why", None, (logged,), blanks, load_playbooks())
    assert (found.failure, missing_of(found)) == (
        "collective-timeout", ["sight of collective-late"],
    )  # fmt: skip


def test_an_unknown_lists_what_could_have_named_it():
    books = load_playbooks()
    blanks = unseen("wait-cycle", "gpu-memory-uneven")
    assert missing_of(diagnose(Verdict.STALLED, "why", None, (), blanks, books)) == [
        "sight of wait-cycle"
    ]


def test_a_run_without_a_queue_is_not_asked_for_waits_at_one():
    engine = Engine(RunOptions(), load_playbooks())
    for frame in frames(20):
        snapshot = engine.advance(frame)
    assert not [one for one in snapshot.inconclusive if one.name.startswith("queue-")]


def test_views_that_broke_are_missing_and_of_an_end_only_those_that_tell_of_it():
    views = {"log": "gap: not allowed", "gpu": "gap: the GPU hangs", "host": "ok", "kernel": "none"}
    stalled = [one.text for one in gaps(views, Verdict.STALLED)]
    assert stalled == ["log: not allowed", "the GPU hangs"]
    assert [one.text for one in gaps(views, Verdict.CRASHED)] == ["log: not allowed"]


def test_the_settling_look_is_at_the_most_telling_source_not_seen():
    seen = {"process": "ok", "stacks": "gap: refused", "log": "gap: x", "gpu": "ok"}
    assert "dump" in (settling_look(seen) or "")
    assert settling_look(dict.fromkeys(seen, "ok")) is None


def test_nothing_to_look_at_is_named_as_that_and_not_as_lost_data():
    absent = RunSample(state="none", how="match", note="no process whose command line matches zz")
    engine = Engine(RunOptions(), load_playbooks())
    for frame in frames(3, run=absent, processes=()):
        snapshot = engine.advance(frame)
    assert (snapshot.verdict, snapshot.failure) == (Verdict.BLIND, "no-run")
    assert snapshot.summary == absent.note
    assert [one.kind for one in snapshot.evidence] == [EvidenceKind.FOR]
    assert not [step for step in snapshot.next if "<pid>" in step]
    assert "--match" in snapshot.next[-1]


def test_while_the_way_is_lost_the_reason_stands_alone():
    lost = symptom("link-lost", "link", Source.LINK)
    unseen = (Inconclusive(name="log-silent", subject="run", missing="a log"),)
    found = diagnose(Verdict.BLIND, "why", None, (lost,), unseen, load_playbooks())
    assert found.failure == "watch-lost"
    assert [one.kind for one in found.evidence] == [EvidenceKind.FOR]
