"""The incident machine: suspect, confirm, ready, resolved; nothing twice, no state skipped."""

from __future__ import annotations

import itertools
from dataclasses import replace

from dflash_watch.frame import StackFrame, StackSample, ThreadStack
from dflash_watch.incidents import ANSWER_S, Incidents, Situation
from dflash_watch.model import IncidentStage, Severity, Verdict
from hypothesis import given, settings
from hypothesis import strategies as st

GOOD = Situation(
    now_t=0.0, verdict=Verdict.RUNNING, failure="healthy", subject="run", severity=Severity.INFO,
    since_t=0.0, is_suspicious=False, opens=False, wants_stacks=False, pid=7,
)  # fmt: skip
BAD = replace(
    GOOD, verdict=Verdict.STALLED, failure="pipeline-deadlock", subject="drafter-1",
    severity=Severity.CRITICAL, is_suspicious=True, opens=True, wants_stacks=True,
)  # fmt: skip
DOUBT = replace(GOOD, is_suspicious=True)
GONE = replace(BAD, verdict=Verdict.CRASHED, pid=None, wants_stacks=False, is_suspicious=False)


class Story:
    """Seconds of situations; stack samples are answered after a delay, or never."""

    def __init__(self, answer_s: float | None = 0.5) -> None:
        self.machine, self.answer_s, self.t = Incidents(), answer_s, 100.0
        self.samples: dict[str, StackSample] = {}
        self.due: list[tuple[float, str]] = []
        self.asked: list[tuple[float, str]] = []
        self.seen: list[tuple[str, str]] = []
        self.ready: list[str] = []

    def go(self, situation: Situation, seconds: int) -> None:
        for _ in range(seconds):
            self.t += 1.0
            self._arrive()
            now = replace(situation, now_t=self.t, since_t=min(situation.since_t or self.t, self.t))
            for want in self.machine.advance(now, self.samples):
                self.asked.append((self.t, want.label))
                if self.answer_s is not None:
                    self.due.append((self.t + self.answer_s, want.label))
            shown = self.machine.shown
            if shown is not None:
                self.seen.append((shown.key, shown.stage))
                if shown.ready and shown.key not in self.ready:
                    self.ready.append(shown.key)

    def _arrive(self) -> None:
        thread = ThreadStack(tid=1, frames=(StackFrame("f", "a.py", 1),))
        for at, label in [one for one in self.due if one[0] <= self.t]:
            self.due.remove((at, label))
            self.samples[label] = StackSample(
                t=at, pid=7, label=label, tool="py-spy", threads=(thread,)
            )


def test_a_stall_gets_three_samples_seconds_apart_and_is_ready_once():
    story = Story()
    story.go(replace(BAD, since_t=101.0), 30)
    assert [label for _, label in story.asked] == ["A", "B", "C"]
    times = [story.samples[label].t for label in "ABC"]
    assert min(b - a for a, b in itertools.pairwise(times)) >= 2.5
    assert len(story.ready) == 1
    assert story.machine.open.stack_labels == ("A", "B", "C")


def test_a_doubt_that_passes_leaves_no_incident_and_takes_no_third_sample():
    story = Story()
    story.go(DOUBT, 6)
    story.go(GOOD, 10)
    assert story.machine.shown is None
    assert len(story.asked) <= 2


def test_a_lasting_doubt_is_looked_at_again_later():
    story = Story()
    story.go(DOUBT, 60)
    assert [label for _, label in story.asked][:3] == ["A", "B", "A"]
    assert story.machine.shown is None


def test_no_answer_is_asked_twice_then_said():
    story = Story(answer_s=None)
    story.go(replace(BAD, since_t=101.0), 40)
    assert [label for _, label in story.asked] == ["A", "A"]
    assert story.asked[1][0] - story.asked[0][0] >= ANSWER_S
    assert story.machine.open.ready
    assert "asked twice" in story.machine.open.stacks_missing


def test_a_third_sample_that_never_comes_does_not_keep_the_first_two_from_the_disk():
    story = Story()
    story.go(BAD, 4)
    story.answer_s = None
    story.go(BAD, 40)
    assert story.machine.open.stack_labels == ("A", "B")
    assert len(story.ready) == 1


def test_a_worker_that_dies_before_the_run_stands_still_is_kept_with_the_stall():
    limps = replace(BAD, verdict=Verdict.RUNNING, failure="worker-died")
    story = Story()
    story.go(limps, 9)
    assert story.ready == []
    story.go(replace(limps, verdict=Verdict.STALLED), 2)
    assert len(story.ready) == 1
    assert story.machine.open.verdict == Verdict.STALLED


def test_a_dead_worker_over_which_steps_go_on_is_kept_as_well():
    story = Story()
    story.go(replace(BAD, verdict=Verdict.RUNNING, failure="worker-died"), 20)
    assert len(story.ready) == 1
    assert story.machine.open.verdict == Verdict.RUNNING


def test_a_gone_process_says_so_instead_of_stacks():
    story = Story()
    story.go(replace(GONE, since_t=101.0, no_stacks="the process is not there any more"), 10)
    assert story.asked == []
    assert "not there" in story.machine.open.stacks_missing
    assert len(story.ready) == 1


def test_the_same_again_soon_is_the_same_incident():
    story = Story()
    story.go(replace(BAD, since_t=101.0), 20)
    story.go(GOOD, 20)
    assert story.machine.shown.stage == IncidentStage.RESOLVED
    story.go(replace(BAD, since_t=141.0), 20)
    assert len(story.ready) == 1
    assert story.machine.open.stage == IncidentStage.CONFIRMED


def test_the_same_again_much_later_is_a_new_incident():
    story = Story()
    story.go(replace(BAD, since_t=101.0), 20)
    story.go(GOOD, 300)
    story.go(replace(BAD, since_t=story.t), 20)
    assert len(story.ready) == 2


def test_a_better_name_for_the_same_stall_opens_no_second_incident():
    story = Story()
    story.go(replace(BAD, since_t=101.0), 20)
    story.go(replace(BAD, failure="worker-died", subject="target-1", since_t=101.0), 20)
    assert len(story.ready) == 1


def test_a_blind_moment_changes_nothing():
    story = Story()
    story.go(replace(BAD, since_t=101.0), 20)
    before = story.machine.open
    story.go(replace(GOOD, verdict=Verdict.BLIND), 60)
    assert story.machine.open == before


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from([GOOD, BAD, DOUBT, GONE]), st.integers(1, 12)), max_size=12),
    st.sampled_from([0.5, 4.0, None]),
)
def test_no_stage_is_skipped_and_nothing_is_ready_before_it_is_confirmed(spans, answer_s):
    story = Story(answer_s)
    for situation, seconds in spans:
        story.go(replace(situation, since_t=story.t + 1), seconds)
        shown = story.machine.shown
        if shown is not None and shown.ready:
            assert shown.stage != IncidentStage.SUSPECTED
            assert shown.stack_labels or shown.stacks_missing
    allowed = {
        ("suspected", "confirmed"), ("confirmed", "resolved"), ("resolved", "confirmed"),
    }  # fmt: skip
    by_key: dict[str, list[str]] = {}
    for key, stage in story.seen:
        stages = by_key.setdefault(key, [])
        if not stages or stages[-1] != stage:
            stages.append(str(stage))
    for stages in by_key.values():
        assert set(itertools.pairwise(stages)) <= allowed
