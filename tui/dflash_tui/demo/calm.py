"""Scenes in which nothing is wrong: on the way, waiting, starting, running, saving, done."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import datetime

import msgspec
from dflash_watch.model import Board, Limit, Link, LogView, Snapshot, Source, Verdict

from dflash_tui.demo import parts
from dflash_tui.demo.base import (
    OK_VIEWS,
    WHERE,
    Moment,
    evidence,
    healthy_board,
    healthy_snapshot,
)


def connecting(at: Moment) -> Snapshot:
    """On the way: no frame yet, one step after the other."""
    steps = ("resolve", "ssh", "container", "agent", "first sample")
    step = steps[min(int((at.now - at.begin) / 1.5), len(steps) - 1)]
    return healthy_snapshot(
        at,
        Board(where=WHERE),
        data_t=None,
        received_t=None,
        verdict=Verdict.BLIND,
        since_t=at.begin,
        failure="watch-lost",
        summary="on the way to 10.1.2.6, container 200",
        evidence=(),
        views={},
        link=Link(state="connecting", step=step, since_t=at.begin),
    )


def no_run(at: Moment) -> Snapshot:
    """Connected, and nothing trains here."""
    idle = parts.gpus(at.now, busy=(0.0, 0.0), watts=(76.0, 75.0))
    cards = tuple(
        msgspec.structs.replace(gpu, memory_used_bytes=600 * 2**20, role=None) for gpu in idle
    )
    return healthy_snapshot(
        at,
        Board(where=WHERE, gpus=cards, host_line="load 0.4/128 · RAM 31/1008 G"),
        run="",
        verdict=Verdict.BLIND,
        since_t=at.begin,
        failure="no-run",
        summary="no training run found: waiting for one to start, the view fills in by itself",
        evidence=evidence(
            (Source.PROCESS, "no process matches dflash"),
            (Source.LOG, "newest log is 3 h old (runs/06/train.log)"),
        ),
        views=OK_VIEWS,
        next=("start the run, or name it: --run-dir, --pid, --match",),
    )


def initialising(at: Moment) -> Snapshot:
    """Target 1 of 5 is being loaded."""
    since = 41 + at.now - at.begin
    cards = [
        msgspec.structs.replace(
            gpu,
            memory_used_bytes=round(
                (53.8 if gpu.index < 1 else 21.0 if gpu.index == 1 else 0.6) * 2**30
            ),
        )
        for gpu in parts.gpus(at.now, busy=(0.0, 0.0), watts=(118.0, 84.0))
    ]
    board = healthy_board(
        at,
        step=None,
        eta_s=None,
        loss=None,
        tokens_per_s=None,
        baseline_tokens_per_s=None,
        last_step_age_s=None,
        phase="loading",
        phase_s=since,
        phase_budget_s=168.0,
        gpus=tuple(cards),
        queue=parts.queue(0, "EMPTY", 0.0),
        throughput=(),
        findings=(),
        workers=(),
        log=LogView(
            path="train.log",
            lines=(
                "  Bucket 5 [3296,8193):  27884 batches ( 46.6%)",
                "Loading 5 target models...",
                "  Target 0 on cuda:0...",
                "    Loaded in 7.2s, mem=53.8 GB",
                "  Target 1 on cuda:1...",
                "Loading weights:  39%|███▉      | 332/851 [00:01<00:02, 225.9it/s]",
            ),
            silent_s=0.3,
        ),
    )
    return healthy_snapshot(
        at,
        board,
        verdict=Verdict.INITIALISING,
        since_t=at.begin - 41,
        failure="loading",
        summary="loading target 1 of 0-4 on cuda:1, about 30 s to go at this pace",
        evidence=evidence(
            (Source.LOG, "target 0 loaded in 7.2 s, target 1 at 39 %"),
            (Source.GPU, "memory grows on GPU 1"),
            (Source.LOG, "no step line yet"),
        ),
        limit=Limit(seconds=336.0, why="2 x the usual loading time of 168 s"),
    )


def running(at: Moment) -> Snapshot:
    """All is well."""
    return healthy_snapshot(at, healthy_board(at))


def quiet(at: Moment) -> Snapshot:
    """A checkpoint is being written."""
    since = 14 + at.now - at.begin
    board = healthy_board(
        at,
        last_step_t=at.begin - 14,
        tokens_per_s=0.0,
        phase="checkpointing",
        phase_s=since,
        phase_budget_s=40.0,
        gpus=parts.gpus(at.now, busy=(0.0, 0.04), watts=(131.0, 152.0), since_s=14),
        queue=parts.queue(60, "FULL", 0.0, "target waits"),
        throughput=parts.throughput(at.now, falls_s=since),
    )
    return healthy_snapshot(
        at,
        board,
        verdict=Verdict.QUIET,
        since_t=at.begin - 14,
        failure="checkpoint-in-progress",
        summary="writing checkpoint 41 000; steps go on after it",
        evidence=evidence(
            (Source.EVENTS, "phase checkpointing began"),
            (Source.PROCESS, "writes 2.1 GiB/s"),
            (Source.EVENTS, "the last three took 19-23 s"),
        ),
        limit=Limit(seconds=120.0, why="5 x the slowest of 6 checkpoints"),
    )


def finished(at: Moment) -> Snapshot:
    """Ended well, some minutes ago."""
    ended = at.begin - 754
    board = healthy_board(
        at._replace(now=ended),
        step=120_000,
        eta_s=None,
        tokens_per_s=None,
        gpus=parts.gpus(at.now, busy=(0.0, 0.0), watts=(74.0, 73.0), since_s=754),
        queue=None,
        workers=(),
        log=LogView(
            path="train.log",
            lines=(
                *parts.log_lines(ended, 30, at.zone),
                "saved checkpoints/step-120000",
                "done in 40 h 02 m",
            ),
            silent_s=at.now - ended,
        ),
    )
    return healthy_snapshot(
        at,
        board,
        verdict=Verdict.FINISHED,
        since_t=ended,
        summary="exit 0 after 120 000 steps; last checkpoint step-120000",
        evidence=evidence(
            (Source.EVENTS, "exit 0, reason done"), (Source.LOG, "its own words: done")
        ),
    )


def on_cpu(at: Moment) -> Snapshot:
    """The bundled tiny run: no GPU, two targets, two drafters."""
    waits = {"target-1": ("queue-put", 0.2, None), "drafter-0": ("peer", 0.1, "drafter-1")}
    board = healthy_board(
        at,
        where="this machine",
        run_name="demo",
        gpus=(),
        workers=parts.workers(waits, cpu=True),
        step=206,
        total_steps=300,
        eta_s=8.0,
        tokens_per_s=3310.0,
        baseline_tokens_per_s=3280.0,
        queue=parts.queue(5, "steady", 13.1),
        throughput=tuple(
            msgspec.structs.replace(point, low=(point.low or 0) / 4.4, high=(point.high or 0) / 4.4)
            for point in parts.throughput(at.now)
        ),
        findings=(),
        log=LogView(path="train.log", lines=tuple(_tiny_lines(at))),
        host_line="load 1.9/2 · RAM 1.1/7.8 G",
    )
    views = {**OK_VIEWS, "gpu": "none: no NVIDIA driver here"}
    why = evidence(
        (Source.BEATS, "step counter moved 13 times in 1 s, all 5 workers get on"),
        (Source.BEATS, "queue 5/60, steady"),
    )
    return healthy_snapshot(at, board, run="demo", since_t=at.begin - 21, views=views, evidence=why)


def _tiny_lines(at: Moment) -> Iterator[str]:
    """A line every five steps, as the tiny run writes them."""
    for step in range(5, 210, 5):
        t = at.now - (206 - step) / 13
        clock = datetime.fromtimestamp(t, at.zone).strftime("%H:%M:%S")
        loss, accept = 0.7 + 4.4 * math.exp(-step / 70), 6.4 - 5.4 * math.exp(-step / 60)
        speed = 3280 * (1 + 0.03 * parts.wobble(1, t))
        yield f"{clock} step={step}/300 loss={loss:.3f} accept={accept:.2f} tok/s={speed:.0f}"


def sixteen(at: Moment) -> Snapshot:
    """Sixteen cards, one of them odd: more rows than a screen has."""
    cards = list(parts.gpus(at.now, targets=10, drafters=6))
    cards[12] = msgspec.structs.replace(cards[12], power_watts=141.0, marks=("power_watts",))
    why = evidence((Source.GPU, "16/16 GPUs report"), (Source.EVENTS, "steps go on"))
    return healthy_snapshot(at, healthy_board(at, gpus=tuple(cards)), evidence=why)
