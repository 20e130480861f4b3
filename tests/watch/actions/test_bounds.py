"""Hours of trouble through the real loop and the real engine: what is done stays bounded, and
nothing is done while nothing can be seen."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

from dflash_watch.actions import HOOKS_AN_HOUR, SAMPLES, STALE_S, Actions
from dflash_watch.bundle import PER_HOUR, IncidentWriter
from dflash_watch.frame import Frame, Record
from dflash_watch.hook import Hook
from dflash_watch.live import Live
from dflash_watch.model import Snapshot, StackRequest, Verdict
from dflash_watch.retention import size_on_disk
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scenarios.timeline import Timeline, playbooks

OURS_S = 1000.0
"""This machine's clock is so far ahead of the run's (as in the timeline)."""


class Watching:
    """A timeline's run behind the live loop; notes all that is done and what was known then.

    It stands where the timeline's engine stands, is the loop's source and clock, and keeps
    incidents at once.
    """

    def __init__(self, run: Timeline, folder: Path) -> None:
        self.run, self.engine, self.folder = run, run.engine, folder
        self.done: list[tuple[str, str]] = []
        self.unseen: list[str] = []
        """What was done while nothing could be seen."""
        self.paths: dict[str, str | None] = {}
        self._wants: list[StackRequest] = []
        self._frame_t, self.is_lost = run.t, False
        self._recent: list[Record] = []
        self._writer = IncidentWriter(folder, run.options, playbooks(), note=self.note)
        hook = Hook(argv=("true",), limit_s=60, environment={"PATH": "/usr/bin:/bin"})
        self.actions = Actions(self, self.note, self, hook=hook)
        self.live = Live(self, self.engine, self, actions=self.actions, keeper=self)
        run.engine, run.answers_stacks = self, False

    # -- as the engine of the timeline -----------------------------------------------------------

    def advance(self, record: Record) -> Snapshot:
        if isinstance(record, Frame):
            self._frame_t = self.run.t
        return self.live.advance(record)

    def go(self, seconds: int, step) -> None:
        """Each second something comes; what was asked for is answered."""
        for _ in range(seconds):
            step(1)
            wants, self._wants = self._wants, []
            for want in wants:
                self.run.feed(self.run._stacks(want))
            for refused in self.actions.refusals(self.run.t):
                self.run.feed(refused)

    # -- as source, clock, journal and keeper of the loop ----------------------------------------

    def request_stacks(self, pid: int, label: str, *, native: bool = False) -> None:
        self.look(f"stacks {label}")
        self._wants.append(StackRequest(label=label, pid=pid, reason=""))

    def note(self, action: str, outcome: str, /, **_details: object) -> None:
        self.done.append((action, outcome))
        if (action, outcome) == ("hook", "started"):
            self.look("hook")

    def look(self, what: str) -> None:
        link = self.live.link.state if self.live.link is not None else "up"
        verdict = self.live.snapshot.verdict if self.live.snapshot is not None else None
        if link != "up" or verdict is Verdict.BLIND or self.run.t - self._frame_t > STALE_S:
            self.unseen.append(f"{what}: {link}, {verdict}, {self.run.t - self._frame_t:.0f} s")

    def wall_s(self) -> float:
        return self.run.t + OURS_S

    monotonic_s = wall_s

    def see(self, record: Record) -> None:
        self._recent = [*self._recent[-60:], record]

    def keep(self, snapshot: Snapshot) -> None:
        if snapshot.incident.key not in self.paths:
            path = self._writer.write(snapshot, self._recent)
            self.paths[snapshot.incident.key] = None if path is None else str(path)

    def path(self, key: str) -> str | None:
        return self.paths.get(key)

    def asked_path(self) -> None:
        return None

    def is_settled(self, key: str) -> bool:
        return key in self.paths

    def count(self) -> Counter[tuple[str, str]]:
        self.actions.finish()
        return Counter(self.done)


def stop(run: Timeline) -> None:
    run.freeze()
    run.state, run.ticker_stopped_t = "T", run.t


def deadlock(run: Timeline) -> None:
    run.freeze()
    run.wait("drafter-0", "lock", on="drafter-1", lock="grads")
    run.wait("drafter-1", "lock", on="drafter-0", lock="weights")


def thaw(run: Timeline) -> None:
    run.state, run.ticker_stopped_t = "S", None
    run.steps_per_s, run.cores, run.log_mode = 12.0, 1.2, "lines"
    for worker in run.workers.values():
        worker.wait, worker.works = "none", True


def test_a_run_that_flaps_all_the_time_neither_pesters_the_run_nor_fills_the_disk(tmp_path):
    run = Timeline.training()
    watching = Watching(run, tmp_path)
    began_t, flaps = run.t, 0
    while run.t - began_t < 1000:
        (stop if flaps % 2 else deadlock)(run)
        watching.go(20, run.go)
        thaw(run)
        watching.go(20, run.go)
        flaps += 1
    count = watching.count()
    assert count["stacks", "asked"] <= SAMPLES + 60
    assert count["incident", "written"] == PER_HOUR
    assert count["hook", "started"] == HOOKS_AN_HOUR
    assert len(list(tmp_path.iterdir())) == PER_HOUR
    assert size_on_disk(tmp_path) < 8 << 20
    assert watching.unseen == []
    verdicts = {one.verdict for one in run.snapshots}
    assert {Verdict.RUNNING, Verdict.STALLED} <= verdicts


STORY = st.lists(
    st.tuples(
        st.sampled_from(["go", "stop", "deadlock", "thaw", "lost", "silent", "back"]),
        st.integers(min_value=1, max_value=14),
    ),
    min_size=4,
    max_size=10,
)


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STORY)
def test_whatever_is_lost_when_nothing_is_done_while_nothing_can_be_seen(story):
    run = Timeline.training(20)
    with tempfile.TemporaryDirectory() as folder:
        watching = Watching(run, Path(folder))
        tell(watching, story)
        assert watching.unseen == []


def test_the_story_that_matters_acts_when_it_sees_and_waits_when_it_does_not():
    run = Timeline.training(20)
    with tempfile.TemporaryDirectory() as folder:
        watching = Watching(run, Path(folder))
        tell(watching, [("stop", 7), ("lost", 60)])
        assert watching.count()["hook", "started"] == 0
        before = watching.count()["stacks", "asked"]
        assert before > 0
        tell(watching, [("back", 20)])
        assert watching.count()["stacks", "asked"] > before
        assert watching.count()["hook", "started"] == 1
        assert watching.unseen == []


def tell(watching: Watching, story: list[tuple[str, int]]) -> None:
    """The run goes on in its own way while the view comes and goes."""
    run = watching.run
    for what, seconds in story:
        if what in ("stop", "deadlock", "thaw"):
            {"stop": stop, "deadlock": deadlock, "thaw": thaw}[what](run)
        elif what == "lost" and not watching.is_lost:
            run.link("lost", "the SSH connection was cut")
            watching.is_lost = True
        elif what == "back" and watching.is_lost:
            run.link("up")
            run.hello()
            watching.is_lost = False
        watching.go(seconds, run.unseen if watching.is_lost or what == "silent" else run.go)
