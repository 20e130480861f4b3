"""One root cause instead of many alarms, ranked by what the playbooks require."""

from __future__ import annotations

from dflash_watch.detectors.examples import frames
from dflash_watch.diagnosis import Diagnosis, diagnose, fill_next, settling_look
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


def test_next_steps_are_filled_with_what_is_known_only():
    assert fill_next(["kill -CONT {pid}", "see {host}"], pid=7) == ("kill -CONT 7", "see <host>")


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
