"""The healthy snapshot from which every scene of the demo departs."""

from __future__ import annotations

from datetime import tzinfo
from typing import Final, NamedTuple

import msgspec
from dflash_watch.model import (
    Board,
    Confidence,
    Evidence,
    EvidenceKind,
    Finding,
    Limit,
    Link,
    LogView,
    Snapshot,
    Source,
    Verdict,
)

from dflash_tui.demo import parts


class Moment(NamedTuple):
    """What a scene is drawn from."""

    now: float
    begin: float
    """When the scene began: ages in it grow from there."""
    zone: tzinfo


WHERE: Final = "10.1.2.6 · ct 200"
RUN: Final = "qwen3-8b-dflash-07"
OK_VIEWS: Final = dict.fromkeys(
    ("run", "process", "log", "gpu", "beats", "events", "host", "stacks"), "ok"
)


def evidence(
    *texts: tuple[Source, str], against: str = "", missing: str = ""
) -> tuple[Evidence, ...]:
    """What speaks for a conclusion, then against it, then what is missing."""
    found = [Evidence(kind=EvidenceKind.FOR, text=text, source=source) for source, text in texts]
    if against:
        found.append(Evidence(kind=EvidenceKind.AGAINST, text=against, source=Source.PROCESS))
    if missing:
        found.append(Evidence(kind=EvidenceKind.MISSING, text=missing, source=Source.STACKS))
    return tuple(found)


def healthy_board(at: Moment, *, last_step_t: float | None = None, **changes: object) -> Board:
    """A healthy board, then what the scene changes."""
    last = at.now if last_step_t is None else last_step_t
    step = parts.step_at(last)
    silent = at.now - last
    board = Board(
        run_name=RUN,
        where=WHERE,
        pid=24294,
        run_dir=f"runs/{RUN}",
        phase="training",
        step=step,
        total_steps=120_000,
        eta_s=(120_000 - step) * parts.STEP_S,
        loss=2.113,
        tokens_per_s=14480 + 90 * parts.wobble(1, at.now),
        baseline_tokens_per_s=parts.BASELINE,
        last_step_age_s=silent + (at.now % parts.STEP_S if last_step_t is None else 0.0),
        run_age_s=11520.0,
        gpus=parts.gpus(at.now),
        queue=parts.queue(41, "steady", 5.1),
        workers=parts.workers({}),
        throughput=parts.throughput(at.now),
        findings=parts.past_findings(at.now),
        log=LogView(path="train.log", lines=parts.log_lines(last, 60, at.zone), silent_s=silent),
        host_line="load 14.2/128 · RAM 212/1008 G · disk 3.1 T free",
    )
    return msgspec.structs.replace(board, **changes)


def healthy_snapshot(at: Moment, board: Board, **changes: object) -> Snapshot:
    """A healthy running snapshot, then what the scene changes."""
    snapshot = Snapshot(
        t=at.now,
        data_t=at.now - 0.4,
        received_t=at.now - 0.4,
        run=RUN,
        verdict=Verdict.RUNNING,
        since_t=at.begin - 11520,
        failure="healthy",
        confidence=Confidence.HIGH,
        summary="training at its usual speed",
        evidence=evidence(
            (Source.EVENTS, "step counter moved 5 times in 6 s"),
            (Source.GPU, "8/8 GPUs report"),
            (Source.BEATS, "queue 41/60, steady"),
        ),
        limit=Limit(seconds=21.0, why="8 x the slowest of 212 steps"),
        views=OK_VIEWS,
        link=Link(state="up"),
        board=board,
    )
    return msgspec.structs.replace(snapshot, **changes)


def with_past(at: Moment, *findings: Finding) -> tuple[Finding, ...]:
    """The findings of a scene before those of the past."""
    return (*findings, *parts.past_findings(at.now))
