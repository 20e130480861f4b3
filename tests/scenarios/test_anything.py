"""Whatever happens in whatever order: the engine answers, no rule fails, nothing is invented."""

from __future__ import annotations

from collections.abc import Callable

from dflash_watch.frame import Gap, GpuSample, StackSample
from dflash_watch.model import Verdict
from hypothesis import given, settings
from hypothesis import strategies as st
from scenarios.timeline import PID, Timeline

Act = Callable[[Timeline], object]


def set_(**changes: object) -> Act:
    return lambda run: [setattr(run, name, value) for name, value in changes.items()]


CARDS = tuple(GpuSample(index=i, power_watts=300.0, sm_ratio=0.5) for i in range(2))
LOST = (CARDS[0], GpuSample(index=1, state="lost", errors={"all": "lost"}))
ACTS: dict[str, Act] = {
    "go": lambda run: run.go(6),
    "go slowly": lambda run: run.go(30, every_s=10.0),
    "unseen": lambda run: run.unseen(12),
    "frozen": lambda run: run.unseen(15, frozen=True),
    "cut": lambda run: run.link("lost", "reset"),
    "closed": lambda run: run.link("closed"),
    "hello": lambda run: run.hello(),
    "freeze": lambda run: run.freeze(),
    "thaw": set_(steps_per_s=12.0, cores=1.2, log_mode="lines", state="S", process="there"),
    "stop": set_(state="T"),
    "disk": set_(state="D"),
    "zombie": set_(process="zombie", exit_code=256),
    "gone": set_(process="gone"),
    "restart": lambda run: run.restart(),
    "lock": lambda run: run.wait("drafter-0", "lock", on="drafter-1"),
    "lock back": lambda run: run.wait("drafter-1", "lock", on="drafter-0"),
    "dry": lambda run: run.wait("drafter-0", "queue-get"),
    "dead": lambda run: setattr(run.workers["target-1"], "there", False),
    "failed": lambda run: run.event("worker-failed", worker="target-0", exception="E", message="m"),
    "odd event": lambda run: run.event("throughput", step=None, wait_shares=3, tokens_per_s="x"),
    "nothing said": lambda run: run.event("phase"),
    "begin": lambda run: run.event("phase", name="evaluating", edge="begin", budget_s=5.0),
    "end": lambda run: run.event("phase", name="evaluating", edge="end"),
    "exit": lambda run: run.event("exit", code=1, reason="failed"),
    "say": lambda run: run.say("\x00\xff\r\rTraceback (most recent call last):\n  oh\nnan\n"),
    "done": lambda run: run.say("training finished\n"),
    "gpus": set_(gpus=lambda t: CARDS),
    "lost": set_(gpus=lambda t: LOST),
    "gap": set_(gpus=None, gaps=(Gap(source="gpu", reason="no answer"),)),
    "blindfold": set_(gaps=tuple(Gap(source=s, reason="x") for s in ("process", "log", "events"))),
    "no stacks": set_(stacks_error="refused"),
    "empty stacks": lambda run: run.feed(
        StackSample(t=run.t, pid=PID, label="A", tool="py-spy", threads=())
    ),
    "moved": set_(log_changes={"path_state": "moved", "path": "/x"}),
    "oom": set_(kernel=(f"oom-kill: Killed process {PID}",), oom_kills=3),
}


@settings(max_examples=40, deadline=None)
@given(st.booleans(), st.lists(st.sampled_from(sorted(ACTS)), max_size=14))
def test_the_engine_answers_whatever_happens(ours, names):
    run = Timeline.training(12) if ours else Timeline.foreign(12)
    for name in names:
        ACTS[name](run)
        run.go(4)
    assert not [one for shot in run.snapshots for one in shot.symptoms if one.name == "rule-failed"]
    for shot in run.snapshots:
        assert shot.since_t <= shot.t + 1e-6
        assert shot.summary
        assert shot.evidence
        assert (shot.last_verdict is None) or shot.verdict == Verdict.BLIND
        assert all(one.opened_t <= shot.t for one in shot.board.findings)
    keys = run.incidents()
    assert len(keys) == len(set(keys))
