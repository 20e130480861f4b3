"""Two ranks, one stops coming: the recorded cards of a real hang, through the real engine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from dflash_watch.engine import Engine
from dflash_watch.frame import (
    Frame,
    GpuSample,
    Hello,
    LogSample,
    ProcessSample,
    RunSample,
    StackSample,
)
from dflash_watch.model import RunOptions, Snapshot, StackRequest
from dflash_watch.readers.stackparse import parse_stacks
from recorded_gpus import HANG, hang
from scenarios.timeline import playbooks

LAUNCHER, RANKS = 570, (613, 614)
HANG_S = 14.0
"""Into the recording; NCCL's own message came 40 s later."""
LINES = [line for line in (HANG / "train.log").read_text().splitlines() if "step=" in line]


@dataclass
class Hang:
    """The recording with processes, log and stacks as an agent would have seen them."""

    gpm: bool = True
    guilty: dict[str, Any] = field(default_factory=dict)
    """What rank 1's process does once it hangs; by default it sleeps."""
    cards: Any = None
    """Changes the cards of a moment."""
    seen: list[Snapshot] = field(default_factory=list)
    asked: list[StackRequest] = field(default_factory=list)
    t0: float = 0.0
    told: int = 0

    def run(self) -> Hang:
        engine = Engine(RunOptions(), playbooks())
        engine.advance(Hello(protocol=1, agent_version="0", python="3.12", hostname="h",
                             agent_pid=1, uid=0))  # fmt: skip
        for frame in self._frames():
            self._take(engine.advance(frame), engine)
        return self

    def _take(self, snapshot: Snapshot, engine: Engine) -> None:
        self.seen.append(snapshot)
        for want in snapshot.wants:
            self.asked.append(want)
            self._take(engine.advance(self._stacks(want, snapshot.t)), engine)

    def _stacks(self, want: StackRequest, t: float) -> StackSample:
        if want.pid == LAUNCHER:
            return StackSample(t=t, pid=LAUNCHER, label=want.label, tool="py-spy", error="none")
        text = (HANG / f"stack-rank{RANKS.index(want.pid)}.txt").read_text()
        sample = parse_stacks(text, t=t, pid=want.pid, label=want.label)
        assert sample is not None
        return sample

    def _frames(self) -> Iterator[Frame]:
        for number, (t, cards) in enumerate(hang(gpm=self.gpm)):
            self.t0 = self.t0 or t
            into_s = t - self.t0
            shown = cards if self.cards is None else self.cards(into_s, cards)
            log = self._log(into_s)
            yield Frame(
                seq=number + 1, t=t, boot_s=5000.0 + into_s, gpus=shown,
                run=RunSample(state="found", how="pid", root_pid=LAUNCHER),
                processes=tuple(self._processes(into_s)), logs=(log,),
            )  # fmt: skip

    def _processes(self, into_s: float) -> Iterator[ProcessSample]:
        def one(pid: int, **more: Any) -> ProcessSample:
            given: dict[str, Any] = {"ppid": LAUNCHER, "start_ticks": pid, "state": "S",
                                     "rss_bytes": 2**31, "rchar": 0, "wchar": 0}  # fmt: skip
            return ProcessSample(
                pid=pid, age_s=20 + into_s, comm="python", cmd="python -u nccl_hang.py",
                is_python=True, **(given | more),
            )  # fmt: skip

        yield one(LAUNCHER, ppid=1, cpu_ticks=300, rss_bytes=2**28)
        yield one(RANKS[0], rank=0, state="R", cpu_ticks=int(100 * into_s))
        held: dict[str, Any] = {"cpu_ticks": int(100 * min(into_s, HANG_S))}
        if into_s > HANG_S:
            held |= {"wchan": "futex_wait_queue", **self.guilty}
            held["cpu_ticks"] += int(held.pop("cores", 0.0) * 100 * (into_s - HANG_S))
        yield one(RANKS[1], rank=1, **held)

    def _log(self, into_s: float) -> LogSample:
        """Steps up to the hang, evenly; afterwards nothing within this recording."""
        due = int(min(into_s / HANG_S, 1.0) * len(LINES))
        lines, self.told = LINES[self.told : due], due
        text = "".join(f"{line}\n" for line in lines)
        return LogSample(path="/w/train.log", via="fd 1", text=text, newlines=len(lines))

    def first(self, verdict: str) -> Snapshot:
        return next(one for one in self.seen if one.verdict == verdict)

    def into_s(self, snapshot: Snapshot) -> float:
        """Seconds since rank 1 stopped coming."""
        return snapshot.t - self.t0 - HANG_S


@pytest.mark.parametrize("gpm", [True, False])
def test_the_guilty_rank_is_named_long_before_the_frameworks_own_timeout(gpm):
    seen = Hang(gpm=gpm).run()
    first = seen.first("stalled")
    assert (first.failure, first.subject) == ("collective-wait", "rank-1")
    assert seen.into_s(first) <= 16
    assert all(one.failure == "collective-wait" for one in seen.seen if one.verdict == "stalled")
    facts = " ".join(fact.text for fact in first.evidence)
    assert "rank-0 on gpu0: 100 % in use" in facts
    assert "futex" in facts


def test_it_is_suspected_as_soon_as_the_cards_tell():
    seen = Hang().run()
    told = [one for one in seen.seen if any(s.name == "collective-waiting" for s in one.symptoms)]
    assert seen.into_s(told[0]) <= 8
    assert {s.subject for s in told[0].symptoms if s.name == "collective-waiting"} == {"rank-1"}


def test_stacks_are_taken_of_the_rank_that_does_not_come_and_show_where_it_stands():
    seen = Hang().run()
    confirming = [want for want in seen.asked if want.label in {"B", "C"}]
    assert {want.pid for want in confirming} == {RANKS[1]}
    assert seen.seen[-1].incident is not None
    assert seen.seen[-1].incident.ready


@pytest.mark.parametrize(
    "busy", [{"cores": 0.9, "state": "R"}, {"cores": 0.1}, {"state": "D", "wchan": "nfs_wait"}]
)
def test_a_rank_that_still_works_on_the_host_is_not_accused(busy):
    seen = Hang(guilty=busy).run()
    assert all(one.failure != "collective-wait" for one in seen.seen)


def test_a_rank_whose_gpu_works_is_waited_for():
    def evaluates(into_s: float, cards: tuple[GpuSample, ...]) -> tuple[GpuSample, ...]:
        busy = {"sm_ratio": 0.5, "tensor_ratio": 0.3, "dram_ratio": 0.2, "utilization_ratio": 0.9}
        if into_s <= HANG_S:
            return cards
        return cards[0], msgspec.structs.replace(cards[1], **busy)

    seen = Hang(cards=evaluates, guilty={"cores": 0.9}).run()
    assert all(one.verdict != "stalled" for one in seen.seen)


def test_ranks_that_all_spin_are_stalled_and_nobody_is_accused():
    def mismatch(into_s: float, cards: tuple[GpuSample, ...]) -> tuple[GpuSample, ...]:
        if into_s <= HANG_S:
            return cards
        same = {"utilization_ratio": 1.0, "sm_ratio": 0.18182, "tensor_ratio": 0.0,
                "dram_ratio": 0.0, "power_watts": 123.0}  # fmt: skip
        return cards[0], msgspec.structs.replace(cards[1], **same)

    seen = Hang(cards=mismatch, guilty={"cores": 1.0, "state": "R"}).run()
    last = seen.seen[-1]
    assert (last.verdict, last.failure, last.subject) == ("stalled", "collective-wait", "run")


def test_cards_of_nobody_known_accuse_nobody():
    def nameless(_: float, cards: tuple[GpuSample, ...]) -> tuple[GpuSample, ...]:
        return tuple(msgspec.structs.replace(card, processes=()) for card in cards)

    seen = Hang(cards=nameless).run()
    assert all(one.failure != "collective-wait" for one in seen.seen)
    told = [one.missing for one in seen.seen[-1].inconclusive if one.name == "collective-waiting"]
    assert told == ["which process uses which GPU: the driver names none of the run's"]
