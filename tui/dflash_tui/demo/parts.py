"""Believable figures of a run that does not exist: eight H200s, five targets, three drafters.

Everything is a function of the moment, so that a frozen clock gives the same screen every time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, tzinfo

from dflash_watch.model import Finding, GpuRow, Point, QueueRow, Severity, WorkerRow

GIB = 2**30
BASELINE = 14200.0
BUCKET_S = 15.0
STEP_S = 1.2
FIRST_STEP_T = 1_700_000_000.0


def wobble(seed: float, t: float) -> float:
    """A smooth number within -1..1 that looks like noise."""
    return (
        0.55 * math.sin(1.7 * seed + t / 37)
        + 0.3 * math.sin(5.1 * seed + t / 11.3)
        + 0.15 * math.sin(t / 3.1)
    )


def throughput(
    now: float, *, falls_s: float | None = None, to: float = 0.0, level: float = 14450.0
) -> tuple[Point, ...]:
    """Half an hour in buckets: a short dip sixteen minutes ago, a fall `falls_s` ago to `to`."""
    last = math.floor(now / BUCKET_S) * BUCKET_S
    points = []
    for back in range(119, -1, -1):
        t = last - back * BUCKET_S
        value = level * (1 + 0.03 * wobble(1, t))
        if 945 < now - t <= 1005:
            value *= 0.64
        if falls_s is not None and now - t < falls_s:
            value = to * (1 + 0.02 * wobble(2, t))
        points.append(Point(t=t, low=value * 0.985, high=value * 1.012))
    return tuple(points)


def gpus(
    now: float,
    *,
    targets: int = 5,
    drafters: int = 3,
    busy: Sequence[float] = (0.97, 0.71),
    watts: Sequence[float] = (608.0, 546.0),
    since_s: float | None = None,
    before: Sequence[float] = (608.0, 546.0),
) -> tuple[GpuRow, ...]:
    """Rows of all cards.

    Args:
        now: moment.
        targets: cards with a target.
        drafters: cards with a drafter.
        busy: utilisation of a target and of a drafter.
        watts: their power.
        since_s: how long the power has been like that; None is always.
        before: their power before.
    """
    rows = []
    for index in range(targets + drafters):
        kind = 0 if index < targets else 1
        used = (121.3 if kind == 0 else 79.2) + 0.4 * wobble(index, 40)
        power = watts[kind] * (1 + 0.012 * wobble(index, now))
        history = []
        for back in range(59, -1, -1):
            past = before[kind] if since_s is not None and back * 30 > since_s else watts[kind]
            history.append(past * (1 + 0.1 * wobble(index * 2.3, now - back * 30)))
        history[-1] = power
        rows.append(
            GpuRow(
                index=index,
                name="NVIDIA H200",
                role="target" if kind == 0 else "drafter",
                utilization_ratio=min(max(busy[kind] + 0.02 * wobble(index, now), 0.0), 1.0)
                if 0 < busy[kind] < 1
                else busy[kind],
                memory_used_bytes=round(used * GIB),
                memory_total_bytes=round(140.4 * GIB),
                power_watts=power,
                power_limit_watts=700.0,
                temperature_celsius=38 + power / 22 + wobble(index, 9),
                power_history=tuple(history),
            )
        )
    return tuple(rows)


def queue(depth: int, trend: str, flow: float, waiting: str | None = None) -> QueueRow:
    """The queue between them; capacity 60."""
    return QueueRow(
        depth=depth, capacity=60, in_per_s=flow, out_per_s=flow, trend=trend, waiting=waiting
    )


def step_at(t: float) -> int:
    """Step number at a moment of an undisturbed run."""
    return 41200 + int((t - FIRST_STEP_T) / STEP_S) % 9000


def log_lines(last_t: float, number: int, zone: tzinfo, depth: int = 41) -> tuple[str, ...]:
    """The newest lines of a step log that ends at `last_t`."""
    lines = []
    for back in range(number - 1, -1, -1):
        t = math.floor(last_t / STEP_S) * STEP_S - back * STEP_S
        step = step_at(t)
        at = datetime.fromtimestamp(t, zone).strftime("%H:%M:%S")
        loss = 2.11 + 0.05 * wobble(step % 97, t)
        speed = BASELINE * (1.02 + 0.03 * wobble(1, t))
        lines.append(f"{at} step {step} loss {loss:.3f} tok/s {speed:.0f} q {depth}/60")
    return tuple(lines)


def finding(
    t: float,
    failure: str,
    text: str,
    severity: Severity = Severity.WARNING,
    *,
    subject: str = "run",
    lasted_s: float | None = None,
) -> Finding:
    """One line of the findings panel; open when no duration is given."""
    closed = None if lasted_s is None else t + lasted_s
    key = f"{failure}/{subject}@{t}"
    return Finding(
        key=key,
        opened_t=t,
        closed_t=closed,
        severity=severity,
        failure=failure,
        subject=subject,
        text=text,
    )


def past_findings(now: float) -> tuple[Finding, ...]:
    """What happened before the scene."""
    return (
        finding(
            now - 1005, "throughput-below-baseline", "9 090 tok/s, 64 % of baseline", lasted_s=58
        ),
        finding(
            now - 2584,
            "checkpoint-in-progress",
            "step 36 000 saved in 21 s",
            Severity.INFO,
            lasted_s=21,
        ),
        finding(
            now - 7807,
            "drafter-starved",
            "queue 0/60 for 40 s: targets were the bottleneck",
            lasted_s=40,
        ),
        finding(
            now - 11512,
            "loading",
            "5 targets and 3 drafters up in 2 m 48 s",
            Severity.INFO,
            lasted_s=168,
        ),
    )


def workers(
    waiting: dict[str, tuple[str, float, str | None]], *, cpu: bool = False
) -> tuple[WorkerRow, ...]:
    """Beat slots of loader, targets and drafters; `waiting` is name -> (what, seconds, of whom)."""
    targets, drafters = (2, 2) if cpu else (5, 3)
    names: list[tuple[str, str, str | None]] = [("loader", "loader", None)]
    names += [(f"target-{index}", "target", f"cuda:{index}") for index in range(targets)]
    names += [
        (f"drafter-{index}", "drafter", f"cuda:{targets + index}") for index in range(drafters)
    ]
    rows = []
    for order, (name, role, device) in enumerate(names):
        wait, since, of = waiting.get(name, ("none", None, None))
        rows.append(
            WorkerRow(
                name=name,
                role=role,
                device="cpu" if cpu else device,
                phase="training",
                step=412 if role != "drafter" else 206,
                items=3296 + order,
                wait=wait,
                wait_s=since,
                waits_for=of,
                progress_age_s=since if since is not None else 0.05 * order,
            )
        )
    return tuple(rows)
