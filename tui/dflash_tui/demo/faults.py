"""Scenes in which something is wrong: slow, stalled, crashed, blind, a card lost."""

from __future__ import annotations

import msgspec
from dflash_watch.model import (
    Candidate,
    Confidence,
    Incident,
    IncidentStage,
    Link,
    LogView,
    Severity,
    Snapshot,
    Source,
    Verdict,
)

from dflash_tui.demo import parts
from dflash_tui.demo.base import (
    OK_VIEWS,
    Moment,
    evidence,
    healthy_board,
    healthy_snapshot,
    with_past,
)


def slow(at: Moment) -> Snapshot:
    """Steps go on at 77 % of the baseline."""
    begun = at.begin - 640
    since = at.now - begun
    board = healthy_board(
        at,
        tokens_per_s=10930 + 120 * parts.wobble(2, at.now),
        gpus=parts.gpus(at.now, busy=(0.63, 0.58), watts=(431.0, 402.0), since_s=since),
        queue=parts.queue(3, "EMPTY", 3.9, "drafter waits"),
        throughput=parts.throughput(at.now, falls_s=since, to=10950.0),
        findings=with_past(
            at,
            parts.finding(
                begun + 60,
                "memory-volatile",
                "reserved memory moves by 19 GiB with the batch length",
            ),
            parts.finding(begun, "throughput-below-baseline", "10 950 tok/s, 77 % of baseline"),
        ),
    )
    return healthy_snapshot(
        at,
        board,
        verdict=Verdict.SLOW,
        since_t=begun,
        failure="throughput-below-baseline",
        severity=Severity.WARNING,
        confidence=Confidence.MEDIUM,
        summary="77 % of the baseline since the batch lengths began to spread",
        evidence=evidence(
            (Source.EVENTS, "10 950 of 14 200 tok/s for 10 min"),
            (Source.GPU, "reserved memory moves with the batch length"),
            (Source.BEATS, "drafters wait 31 % of the time"),
        ),
        candidates=(
            Candidate(failure="memory-volatile", score=0.71),
            Candidate(failure="drafter-starved", score=0.42),
        ),
        next=(
            "fix the length buckets so that shapes repeat",
            "dflash-watch explain memory-volatile",
        ),
        playbook="throughput-below-baseline",
    )


def stalled(at: Moment) -> Snapshot:
    """Two drafters hold each other's lock."""
    begun = at.begin - 250
    since = at.now - begun
    board = healthy_board(
        at,
        last_step_t=begun,
        tokens_per_s=0.0,
        gpus=parts.gpus(at.now, busy=(0.0, 1.0), watts=(92.0, 132.0), since_s=since),
        queue=parts.queue(60, "FULL", 0.0, "target waits"),
        workers=parts.workers(
            {
                **{f"target-{n}": ("queue-put", since - 3, None) for n in range(5)},
                "loader": ("queue-put", since - 2, None),
                "drafter-0": ("lock", since, "drafter-1"),
                "drafter-1": ("lock", since, "drafter-0"),
                "drafter-2": ("peer", since, "drafter-0"),
            }
        ),
        throughput=parts.throughput(at.now, falls_s=since),
        findings=with_past(
            at,
            parts.finding(
                begun + 24,
                "pipeline-deadlock",
                "drafter-0 and drafter-1 hold each other's lock; the queue is full behind them",
                Severity.CRITICAL,
                subject="drafter-0",
            ),
            parts.finding(begun + 21, "log-silent", "no line for 21 s, limit 21 s"),
        ),
    )
    return healthy_snapshot(
        at,
        board,
        verdict=Verdict.STALLED,
        since_t=begun,
        failure="pipeline-deadlock",
        subject="drafter-0, drafter-1",
        severity=Severity.CRITICAL,
        confidence=Confidence.HIGH,
        summary="drafter-0 and drafter-1 wait for each other; nobody takes from the full queue",
        evidence=evidence(
            (Source.STACKS, "same two leaves in three samples, no CPU between them"),
            (Source.GPU, "GPU 5-7 at 100 % and 132 W: spinning, not working"),
            (Source.BEATS, "queue 60/60, nobody takes"),
            against="the ticker beats: the interpreter lives",
        ),
        explains=("drafter-idle", "target-blocked", "log-silent"),
        incident=Incident(
            key=f"pipeline-deadlock/drafter-0@{begun:.0f}",
            failure="pipeline-deadlock",
            subject="drafter-0",
            verdict=Verdict.STALLED,
            severity=Severity.CRITICAL,
            stage=IncidentStage.CONFIRMED,
            opened_t=begun,
            confirmed_t=begun + 24,
            stack_labels=("A", "B", "C"),
            path="incidents/20261129T140910Z-pipeline-deadlock",
        ),
        next=(
            "read stacks.diff.txt of the incident",
            "stop with SIGTERM: a checkpoint of step 41 000 exists",
        ),
        playbook="pipeline-deadlock",
    )


def autotune(at: Moment) -> Snapshot:
    """A target died while tuning a kernel; the others wait."""
    begun = at.begin - 480
    since = at.now - begun
    traceback = (
        "Exception in thread target-3:",
        '  File "triton/runtime/autotuner.py", line 212, in do_bench',
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.31 GiB",
    )
    base = stalled(at)
    board = msgspec.structs.replace(
        base.board,
        gpus=parts.gpus(at.now, busy=(0.0, 0.0), watts=(88.0, 79.0), since_s=since),
        queue=parts.queue(0, "EMPTY", 0.0, "drafter waits"),
        throughput=parts.throughput(at.now, falls_s=since),
        last_step_age_s=since,
        log=LogView(
            path="train_opt.log",
            lines=(*parts.log_lines(begun, 30, at.zone), *traceback),
            silent_s=since,
        ),
        findings=with_past(
            at,
            parts.finding(
                begun,
                "triton-autotune-oom",
                "tuning scratch did not fit beside the weights; target-3 ended, the others wait",
                Severity.CRITICAL,
                subject="target-3",
            ),
        ),
    )
    return msgspec.structs.replace(
        base,
        since_t=begun,
        board=board,
        failure="triton-autotune-oom",
        subject="target-3",
        summary="target-3 died while tuning a kernel in a full card; the queue ran dry behind it",
        evidence=evidence(
            (Source.LOG, "out of memory inside do_bench, thread target-3"),
            (Source.PROCESS, "thread target-3 is gone"),
            (Source.BEATS, "queue 0/60"),
        ),
        explains=("worker-died", "drafter-starved", "log-silent"),
        next=(
            "tune before memory fills: dflash-watch explain triton-autotune-oom",
            "restart from step 41 000",
        ),
        playbook="triton-autotune-oom",
    )


def crashed(at: Moment) -> Snapshot:
    """A worker raised and the trainer stopped."""
    ended = at.begin - 95
    board = healthy_board(
        at,
        last_step_t=ended - 2,
        tokens_per_s=None,
        eta_s=None,
        gpus=parts.gpus(at.now, busy=(0.0, 0.0), watts=(74.0, 73.0), since_s=95),
        queue=None,
        workers=(),
        throughput=parts.throughput(at.now - 95),
        log=LogView(
            path="train.log",
            lines=(
                *parts.log_lines(ended - 2, 30, at.zone),
                "Traceback (most recent call last):",
                '  File "dflash_train/workers.py", line 88, in run',
                "RuntimeError: cuDNN error: CUDNN_STATUS_INTERNAL_ERROR",
                "worker target-1 failed; stopping the pipeline",
            ),
            silent_s=at.now - ended,
        ),
        findings=with_past(
            at,
            parts.finding(
                ended,
                "worker-died",
                "RuntimeError: cuDNN error: CUDNN_STATUS_INTERNAL_ERROR",
                Severity.CRITICAL,
                subject="target-1",
            ),
        ),
    )
    return healthy_snapshot(
        at,
        board,
        verdict=Verdict.CRASHED,
        since_t=ended,
        failure="worker-died",
        subject="target-1",
        severity=Severity.CRITICAL,
        summary="target-1 raised and the trainer stopped the pipeline, exit code 1",
        evidence=evidence(
            (Source.EVENTS, "worker-failed target-1: cuDNN internal error"),
            (Source.EVENTS, "exit 1"),
            (Source.GPU, "GPU 1 was at 139.8 of 140.4 GiB"),
        ),
        next=("lower the largest token bucket, then resume from step 41 000",),
        playbook="worker-died",
    )


def gpu_lost(at: Moment) -> Snapshot:
    """Steps go on; the driver gives no values for one card."""
    cards = list(parts.gpus(at.now))
    cards[6] = msgspec.structs.replace(
        cards[6],
        state="lost",
        note="GPU is lost (NVML 15); last seen 41 s ago",
        utilization_ratio=None,
    )
    cards[2] = msgspec.structs.replace(cards[2], power_watts=388.0, marks=("power_watts",))
    board = healthy_board(
        at,
        gpus=tuple(cards),
        findings=with_past(
            at,
            parts.finding(
                at.begin - 41, "gpu-view-lost", "no values from GPU 6, steps go on", subject="gpu6"
            ),
        ),
    )
    return healthy_snapshot(
        at,
        board,
        failure="gpu-view-lost",
        subject="gpu6",
        severity=Severity.WARNING,
        summary="steps go on; the driver gives no values for GPU 6",
        views={**OK_VIEWS, "gpu": "gap: GPU 6 lost"},
        next=("look for Xid lines in the host's kernel log",),
        playbook="gpu-view-lost",
    )


def blind(at: Moment) -> Snapshot:
    """The connection is gone; the last figures stand still."""
    lost = at.begin - 38
    then = at._replace(now=lost)
    return healthy_snapshot(
        at,
        healthy_board(then),
        data_t=lost,
        received_t=lost,
        verdict=Verdict.BLIND,
        last_verdict=Verdict.RUNNING,
        since_t=lost,
        failure="watch-lost",
        severity=Severity.WARNING,
        summary="nothing has come from the other side for 38 s",
        evidence=(),
        link=Link(
            state="lost",
            step="ssh",
            reason="ssh to 10.1.2.6 timed out 3 times",
            since_t=lost,
            retry_at_t=at.begin + 8 + 10 * max(int((at.now - at.begin - 8) // 10) + 1, 0),
        ),
        next=("ssh root@10.1.2.6 by hand: does the host answer?",),
        playbook="watch-lost",
    )
