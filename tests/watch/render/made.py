"""A run with a deadlock, as records and as a snapshot, for tests of everything that writes."""

from __future__ import annotations

from typing import Any

import msgspec
from dflash_watch.frame import (
    Disk,
    Frame,
    Gap,
    GpuSample,
    Hello,
    HostSample,
    LogSample,
    ProcessSample,
    Record,
    RunSample,
    StackFrame,
    StackSample,
    ThreadSample,
    ThreadStack,
)
from dflash_watch.model import (
    Board,
    Candidate,
    Confidence,
    Evidence,
    EvidenceKind,
    Finding,
    Incident,
    IncidentStage,
    Limit,
    LogView,
    QueueRow,
    Severity,
    Snapshot,
    Source,
    Verdict,
)

T0 = 1_790_000_000.0
SECRET = "hf_AbCdEfGhIjKlMnOpQrStUv0123"
EVIDENCE = (
    Evidence(kind=EvidenceKind.FOR, text="drafter-1 waits for drafter-0", source=Source.STACKS),
    Evidence(kind=EvidenceKind.AGAINST, text="the ticker beats", source=Source.BEATS),
    Evidence(kind=EvidenceKind.MISSING, text="no answer from the driver", source=Source.GPU),
)


def healthy(t: float = T0, **more: Any) -> Snapshot:
    given: dict[str, Any] = {
        "t": t,
        "run": "demo",
        "verdict": Verdict.RUNNING,
        "since_t": T0 - 60,
        "failure": "healthy",
        "summary": "step 120 of 300, 0.1 s ago",
        "data_t": t,
        "views": {"log": "ok", "gpu": "ok"},
        "board": Board(
            step=120,
            total_steps=300,
            tokens_per_s=14200.0,
            baseline_tokens_per_s=14200.0,
            loss=2.345,
            last_step_age_s=0.1,
            queue=QueueRow(depth=3, capacity=8),
            pid=4242,
            run_dir="/runs/demo",
            log=LogView(path="/runs/demo/train.log"),
        ),
        **more,
    }
    return Snapshot(**given)


def deadlocked(t: float = T0 + 20, **more: Any) -> Snapshot:
    incident = Incident(
        key=f"pipeline-deadlock/drafter-1@{T0}",
        failure="pipeline-deadlock",
        subject="drafter-1",
        verdict=Verdict.STALLED,
        severity=Severity.CRITICAL,
        stage=IncidentStage.CONFIRMED,
        opened_t=T0,
        stack_labels=("A", "B", "C"),
        ready=True,
    )
    given: dict[str, Any] = {
        "verdict": Verdict.STALLED,
        "since_t": T0,
        "failure": "pipeline-deadlock",
        "subject": "drafter-1",
        "severity": Severity.CRITICAL,
        "confidence": Confidence.HIGH,
        "summary": "drafter-0 and drafter-1 wait for each other | both hold a lock",
        "evidence": EVIDENCE,
        "explains": ("drafter-idle", "log-silent"),
        "candidates": (
            Candidate(failure="pipeline-deadlock", score=0.9),
            Candidate(failure="gil-held", score=0.2),
        ),
        "limit": Limit(seconds=10.0, why="8 x the slowest of 212 steps"),
        "views": {"log": "ok", "gpu": "gap: no answer for 14 s"},
        "next": ("kill -TERM 4242", "resume"),
        "playbook": "pipeline-deadlock",
        "incident": incident,
        **more,
    }
    return healthy(t, **given)


def finding(key: str, t: float, closed_t: float | None = None, **more: Any) -> Finding:
    given: dict[str, Any] = {
        "severity": Severity.WARNING,
        "failure": "log-moved",
        "subject": "train.log",
        "text": "the log was renamed",
        **more,
    }
    return Finding(key=key, opened_t=t, closed_t=closed_t, **given)


def with_findings(snapshot: Snapshot, *findings: Finding) -> Snapshot:
    board = msgspec.structs.replace(snapshot.board, findings=findings)
    return msgspec.structs.replace(snapshot, board=board)


def worker(tid: int, name: str, ticks: int) -> ThreadStack:
    frames = (
        StackFrame("acquire", "/opt/x/dflash_train/locks.py", 40),
        StackFrame("step", "/opt/x/dflash_train/drafter.py", 9),
    )
    return ThreadStack(tid=tid, name=name, frames=frames, state="S", cpu_ticks=ticks)


def stacks(label: str, t: float, **more: Any) -> StackSample:
    threads = (
        worker(11, "drafter-0", 50),
        worker(12, "drafter-1", 60),
        ThreadStack(
            tid=13,
            name="dflash-ticker",
            frames=(StackFrame("_run", "/opt/x/dflash_events/ticker.py", 30),),
        ),
    )
    given: dict[str, Any] = {"pid": 4242, "tool": "py-spy", "threads": threads, **more}
    return StackSample(t=t, label=label, **given)


def frame(n: int) -> Frame:
    return Frame(
        seq=n,
        t=T0 + n,
        boot_s=1000.0 + n,
        run=RunSample(state="found", how="pid", root_pid=4242),
        processes=(
            ProcessSample(
                pid=4242,
                ppid=1,
                start_ticks=77,
                age_s=600.0 + n,
                state="S",
                comm="python",
                cmd=f"python train.py --hf-token {SECRET}",
                cpu_ticks=1000 + 50 * n,
                rss_bytes=2 << 30,
                num_threads=3,
            ),
        ),
        threads={
            "4242": (ThreadSample(11, "drafter-0", "S", 50), ThreadSample(12, "drafter-1", "S", 60))
        },
        logs=(
            LogSample(
                path="/runs/demo/train.log",
                via="fd 1",
                text=f"\x1b[32mstep {n}\x1b[0m loss 2.3 token {SECRET}\n",
            ),
        ),
        gpus=(GpuSample(index=0, name="H200", utilization_ratio=0.5, errors={"power": "refused"}),),
        host=HostSample(
            hostname="box",
            cpus=8,
            disks=(Disk(path="/runs", what="run-dir", free_bytes=1 << 30, total_bytes=4 << 30),),
        ),
        kernel=("oom-kill: killed process 999",) if n == 3 else None,
        gaps=(Gap(source="gpu", reason="no answer for 14 s"),) if n == 5 else (),
    )


def records(count: int = 12) -> list[Record]:
    hello = Hello(protocol=1, agent_version="1", python="3.11", hostname="box", agent_pid=1, uid=0)
    made: list[Record] = [hello, *(frame(n) for n in range(count))]
    return [
        *made,
        stacks("census", T0 - 50),
        stacks("A", T0 + 12),
        stacks("B", T0 + 14),
        stacks("C", T0 + 16),
    ]
