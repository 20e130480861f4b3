"""When a check has seen enough, and what it may claim after so short a look."""

import msgspec
import pytest
from dflash_watch.commands.glance import (
    Patience,
    admit,
    explain_absence,
    is_answer,
    is_undecided,
    spins,
    temper,
)
from dflash_watch.detectors.examples import frames, log, process
from dflash_watch.engine import Engine
from dflash_watch.frame import Frame, GpuSample, LinkChange, RunSample
from dflash_watch.model import Board, Confidence, EvidenceKind, RunOptions, Snapshot, Verdict
from dflash_watch.playbooks import load_playbooks


class Hand:
    """A clock set by hand."""

    now_s = 0.0

    def wall_s(self) -> float:
        return self.now_s

    def monotonic_s(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


class Loop:
    """What of a live loop the rule reads."""

    def __init__(self) -> None:
        self.snapshot = self.link = self.frame = None
        self.frames = 0

    def look(self, t: float, step: int | None = None, state: str = "found") -> None:
        self.frames += 1
        self.frame = Frame(seq=self.frames, t=t, boot_s=t, run=RunSample(state=state, how="pid"))
        self.snapshot = seen(t, step=step)


def seen(t: float, *, verdict=Verdict.RUNNING, step=None, sure=Confidence.HIGH) -> Snapshot:
    return Snapshot(
        t=t, data_t=t, run="r", verdict=verdict, since_t=0.0, failure="healthy", summary="s",
        confidence=sure, board=Board(step=step),
    )  # fmt: skip


def test_enough_is_two_looks_a_window_apart_on_the_hosts_clock():
    patience, loop = Patience(Hand(), 2.0, 30.0), Loop()
    answers = []
    for t in (100.0, 100.5, 101.0, 101.5, 101.97):
        loop.look(t)
        answers.append(patience(loop))
    assert answers == [False, False, False, False, True]
    assert patience.seen_s == pytest.approx(1.97)


def test_steps_are_counted_over_the_window():
    patience, loop = Patience(Hand(), 2.0, 30.0), Loop()
    for t, step in ((100.0, 40), (102.0, 47)):
        loop.look(t, step)
        patience(loop)
    assert patience.steps == 7


def test_the_deadline_ends_a_check_that_sees_nothing():
    clock, loop = Hand(), Loop()
    patience = Patience(clock, 2.0, 30.0)
    assert not patience(loop)
    clock.now_s = 30.0
    assert patience(loop)


@pytest.mark.parametrize("state", ["lost", "closed"])
def test_a_lost_way_ends_a_check_at_once(state):
    patience, loop = Patience(Hand(), 2.0, 30.0), Loop()
    loop.link = LinkChange(t=1.0, state=state, reason="refused")
    assert patience(loop)


def test_no_run_is_believed_after_the_second_look():
    patience, loop = Patience(Hand(), 60.0, 90.0), Loop()
    loop.look(100.0, state="none")
    assert not patience(loop)
    loop.look(100.5, state="none")
    assert patience(loop)


def test_when_nothing_was_seen_the_summary_is_the_plain_reason():
    loop = Loop()
    loop.link = LinkChange(t=1.0, state="lost", reason="box: connection refused")
    blind = seen(1.0, verdict=Verdict.BLIND)
    assert explain_absence(blind, loop).summary == "box: connection refused"
    loop.link = None
    assert explain_absence(blind, loop).summary == "no answer in time"


def test_a_look_without_a_step_is_less_sure_and_says_what_is_missing():
    tempered = temper(seen(1.0, verdict=Verdict.QUIET), 2.0, 0)
    assert tempered.confidence is Confidence.MEDIUM
    (missing,) = tempered.evidence
    assert missing.kind is EvidenceKind.MISSING
    assert "only 2.0 s were seen" in missing.text


def test_low_confidence_is_not_raised():
    low = seen(1.0, sure=Confidence.LOW)
    assert temper(low, 2.0, 0).confidence is Confidence.LOW


@pytest.mark.parametrize("verdict", [Verdict.CRASHED, Verdict.FINISHED, Verdict.BLIND])
def test_an_end_or_a_lost_view_needs_no_longer_look(verdict):
    snapshot = seen(1.0, verdict=verdict)
    assert temper(snapshot, 2.0, 0) == snapshot


def test_steps_that_were_seen_to_go_on_need_no_longer_look():
    snapshot = seen(1.0)
    assert temper(snapshot, 2.0, 3) == snapshot
    assert temper(msgspec.structs.replace(snapshot, t=2.0), 2.0, 0) != snapshot


def looked(
    silent_s: float, *, steps: int = 3, moves: bool = False, gpu: GpuSample | None = None
) -> tuple[Snapshot, Engine]:
    """A check of a run whose log ended so long ago and told so few steps."""

    def old(i: int):
        lines = "".join(f"step {step} loss 2.0\n" for step in range(1, steps + 1))
        return log(lines if i == 0 else "", mtime_age_s=silent_s + i)

    engine = Engine(RunOptions(), load_playbooks(), takes_stacks=False)
    ticks = (lambda i: 1000 + 50 * i) if moves else (lambda _: 1000)

    def parts(i: int):
        return (process(i, age_s=600.0 + i, cpu_ticks=ticks(i)),)

    for record in frames(5, logs=old, processes=parts, gpus=None if gpu is None else (gpu,)):
        snapshot = engine.advance(record)
    return snapshot, engine


def test_silence_without_a_known_pace_cannot_be_told_from_a_stall():
    snapshot, engine = looked(30.0)
    assert snapshot.verdict is Verdict.RUNNING
    assert is_undecided(snapshot, engine)
    said = admit(snapshot)
    assert said.summary.startswith("cannot tell from one look: nothing moves")
    assert said.confidence is Confidence.LOW


@pytest.mark.parametrize("given", [{"silent_s": 3.0}, {"silent_s": 30.0, "moves": True}])
def test_a_step_of_just_now_and_work_that_moves_decide(given):
    assert not is_undecided(*looked(**given))


@pytest.mark.parametrize(
    ("changes", "is_told"),
    [
        ({}, True),
        ({"sm_ratio": None}, True),
        ({"power_watts": 600.0}, False),
        ({"power_watts": None}, False),
        ({"sm_ratio": 0.9}, False),
        ({"utilization_history": (1.0, 0.2, 1.0)}, False),
        ({"utilization_history": ()}, False),
    ],
)
def test_a_thread_that_waits_for_a_spinning_card_is_no_work_to_a_check(changes, is_told):
    row = {
        "index": 0, "utilization_ratio": 1.0, "utilization_history": (1.0,) * 70, "sm_ratio": 0.008,
        "power_watts": 122.0, "power_limit_watts": 700.0, "memory_used_bytes": 2**31,
    }  # fmt: skip
    snapshot, engine = looked(30.0, moves=True, gpu=GpuSample(**(row | changes)))
    assert is_undecided(snapshot, engine) is is_told
    if is_told:
        assert "gpu0 reads 100 % and does nothing" in admit(snapshot, spins(engine)).summary


def test_a_known_pace_decides():
    snapshot, engine = looked(30.0, steps=40)
    assert engine.limits.is_taught("training")
    assert not is_undecided(snapshot, engine)


def test_a_run_without_a_step_is_undecided_once_its_log_was_silent_for_long():
    assert is_undecided(*looked(90.0, steps=0))
    assert not is_undecided(*looked(20.0, steps=0))


@pytest.mark.parametrize(
    ("state", "enough"), [("connecting", False), ("up", False), ("lost", True), ("closed", True)]
)
def test_nobody_waits_for_a_first_look_over_a_lost_way(state, enough):
    assert is_answer(LinkChange(t=1.0, state=state)) is enough
