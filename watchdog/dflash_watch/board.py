"""The board: everything that is drawn beside the verdict, from the window."""

from __future__ import annotations

import math
import statistics
from collections import deque

from dflash_watch.frame import HostSample
from dflash_watch.model import (
    Board,
    Finding,
    GpuRow,
    LogView,
    Point,
    QueueRow,
    RunOptions,
    WorkerRow,
)
from dflash_watch.progress import Progress
from dflash_watch.readers.clockreasons import in_words
from dflash_watch.roles import gpu_roles
from dflash_watch.units import duration, gib
from dflash_watch.window import Window
from dflash_watch.window.gpuload import WORDS, Look
from dflash_watch.window.gpus import WINDOW_S, GpuTrack
from dflash_watch.window.speed import BUCKET_S, FINE_WINDOW_S, Bucket, Throughput

NEWEST_S = 5.0
LOG_LINES = 100
BAND_LOOKS = 20
"""Readings that make a GPU's own recent band."""
STALE_S = 5.0
RATE_LOOKS = 11
"""Looks at the workers that make a rate: what flowed longer ago is not now."""


def build_board(
    window: Window,
    progress: Progress,
    options: RunOptions,
    findings: tuple[Finding, ...],
    *,
    is_over: bool = False,
) -> Board:
    """The board of this moment; of a run that is over nothing flows any more."""
    frame, told = window.frame, window.told
    run = frame.run if frame is not None else None
    main = window.main()
    phase = progress.phase
    tells_tokens = told.throughput.newest is not None
    speed = told.throughput if tells_tokens else progress.steps.speed
    in_steps = not tells_tokens and speed.newest is not None
    return Board(
        run_name=options.name or (run.name if run else None) or window.manifest.get("name"),
        where=options.where,
        pid=window.main_pid(),
        run_dir=run.run_dir if run else None,
        phase=phase.name if phase else ("training" if progress.first_step_t else None),
        phase_s=window.now_t - phase.since_t if phase else None,
        phase_budget_s=phase.budget_s if phase else None,
        step=progress.step,
        total_steps=progress.total_steps,
        eta_s=progress.eta_s(),
        loss=progress.loss,
        tokens_per_s=told.throughput.newest,
        steps_per_s=speed.newest if in_steps else None,
        baseline_tokens_per_s=baseline(window, options),
        last_step_age_s=progress.last_step_age_s(window),
        run_age_s=main.sample.age_s if main else None,
        gpus=_gpu_rows(window, options),
        queue=_queue(window, is_over=is_over),
        workers=_workers(window),
        throughput=_points(speed, window.now_t),
        recent=_recent(speed, window.now_t),
        throughput_unit="steps/s" if in_steps else "tok/s",
        window_s=WINDOW_S,
        findings=findings,
        log=_log(window),
        host_line=_host_line(frame.host if frame else None),
    )


def baseline(window: Window, options: RunOptions) -> float | None:
    """What was promised, else this run's own level once a minute of it is known."""
    promised = options.expect_tokens_per_s or window.manifest.get("expected_tokens_per_s")
    if promised:
        return float(promised)
    buckets = window.told.throughput.buckets
    if len(buckets) < 60 / BUCKET_S:
        return None
    return statistics.median(bucket.mean for bucket in buckets)


# -- GPUs --------------------------------------------------------------------------------------


def _gpu_rows(window: Window, options: RunOptions) -> tuple[GpuRow, ...]:
    roles = gpu_roles(window, options)
    gap = window.gaps.get("gpu")
    rows = []
    for index, track in sorted(window.gpus.tracks.items()):
        rows.append(_gpu_row(window, track, roles.get(index), gap.reason if gap else None))
    return tuple(rows)


def _gpu_row(window: Window, track: GpuTrack, role: str | None, gap: str | None) -> GpuRow:
    sample = track.sample
    recent = track.recent(track.seen_t - NEWEST_S)
    age_s = window.now_t - track.seen_t
    state, note = sample.state, next(iter(sample.errors.values()), None)
    if state == "ok" and (gap is not None or age_s > STALE_S):
        state, note = "stale", f"{gap or 'no answer'}; values {duration(age_s)} old"
    return GpuRow(
        index=sample.index, name=sample.name, role=role, state=state, note=note,
        utilization_ratio=_mean([look.util for look in recent]),
        memory_used_bytes=sample.memory_used_bytes, memory_total_bytes=sample.memory_total_bytes,
        power_watts=_mean([look.power for look in recent[-2:]]),
        power_limit_watts=sample.power_limit_watts,
        temperature_celsius=sample.temperature_celsius,
        sm_ratio=_mean([look.sm for look in recent]),
        power_history=track.power_history(window.now_t),
        marks=_marks(track.looks),
        load=track.reading.load.value if track.reading is not None and state == "ok" else None,
        load_text=_load_text(track) if state == "ok" else None,
        clocks=_clocks(track) if state == "ok" else None,
    )  # fmt: skip


def _load_text(track: GpuTrack) -> str | None:
    reading = track.reading
    if reading is None:
        return None
    clocks = _clocks(track)
    held = f"; clocks: {clocks}" if clocks not in {None, "none", "it idles"} else ""
    return f"{WORDS[reading.load]} ({reading.text}){held}"


def _clocks(track: GpuTrack) -> str | None:
    """Why the clocks are where they are, as the newest look says."""
    mask = track.sample.clock_reasons
    return None if mask is None else in_words(mask)


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def _marks(looks: deque[Look]) -> tuple[str, ...]:
    """Fields outside their own recent band: median plus or minus four deviations and a tenth."""
    marks = []
    past, newest = list(looks)[:-3], list(looks)[-3:]
    for field, attribute in (("power_watts", "power"), ("memory_used_bytes", "memory")):
        known = [float(value) for one in past if (value := getattr(one, attribute)) is not None]
        now = _mean([getattr(one, attribute) for one in newest])
        if len(known) < BAND_LOOKS or now is None:
            continue
        middle = statistics.median(known)
        spread = statistics.median(abs(value - middle) for value in known)
        if abs(now - middle) > 4 * 1.4826 * spread + 0.1 * middle:
            marks.append(field)
    return tuple(marks)


# -- queue and workers -------------------------------------------------------------------------


def _queue(window: Window, *, is_over: bool) -> QueueRow | None:
    told = window.told
    if not told.depths and told.capacity is None:
        return None
    depth = told.depths[-1][1] if told.depths else None
    if is_over:
        return QueueRow(depth=depth, capacity=told.capacity)
    return QueueRow(
        depth=depth, capacity=told.capacity,
        in_per_s=_rate(window, "target"), out_per_s=_rate(window, "drafter"),
        trend=_trend(list(told.depths), told.capacity), waiting=_waiting(window),
    )  # fmt: skip


def _rate(window: Window, role: str) -> float | None:
    rates = []
    for worker in window.told.in_role(role):
        past = list(window.told.items.get(worker.name) or ())[-RATE_LOOKS:]
        if len(past) >= 2 and past[-1][0] > past[0][0]:
            rates.append((past[-1][1] - past[0][1]) / (past[-1][0] - past[0][0]))
    return sum(rates) if rates else None


def _trend(depths: list[tuple[float, int]], capacity: int | None) -> str | None:
    if not depths:
        return None
    newest = [depth for _, depth in depths[-5:]]
    if capacity and min(newest) >= capacity:
        return "FULL"
    if max(newest) == 0:
        return "EMPTY"
    half = depths[-20:]
    if len(half) < 6:
        return "steady"
    middle = len(half) // 2
    change = statistics.fmean(d for _, d in half[middle:]) - statistics.fmean(
        d for _, d in half[:middle]
    )
    if abs(change) < max(1.0, 0.1 * (capacity or 10)):
        return "steady"
    return "filling" if change > 0 else "draining"


def _waiting(window: Window) -> str | None:
    """Which side waits, when all of it has done so for a second."""
    for role, reason in (("target", "queue-put"), ("drafter", "queue-get")):
        workers = window.told.in_role(role)
        if workers and all(one.wait == reason and (one.wait_age_s or 0) >= 1 for one in workers):
            return f"{role} waits"
    return None


def _workers(window: Window) -> tuple[WorkerRow, ...]:
    return tuple(
        WorkerRow(
            name=one.name, role=one.role, device=one.device, tid=one.tid, phase=one.phase,
            step=one.step, items=one.items, wait=None if one.wait == "none" else one.wait,
            wait_s=None if one.wait == "none" else one.wait_age_s, waits_for=one.waits_for,
            progress_age_s=one.progress_age_s, state=one.state,
        )
        for one in window.told.workers.values()
    )  # fmt: skip


# -- throughput, log, host ---------------------------------------------------------------------


def _points(speed: Throughput, now_t: float) -> tuple[Point, ...]:
    """The plot window in buckets; a bucket in which nothing was said is a gap."""
    known = {bucket.start_t: bucket for bucket in speed.buckets}
    if not known:
        return ()
    end = math.floor(now_t / BUCKET_S) * BUCKET_S
    count = int(WINDOW_S / BUCKET_S)
    points = []
    for number in range(count):
        start = end - (count - 1 - number) * BUCKET_S
        bucket = known.get(start)
        points.append(_point(bucket) if bucket else Point(t=start, low=None, high=None))
    return tuple(points)


def _recent(speed: Throughput, now_t: float) -> tuple[Point, ...]:
    """The newest minutes in fine buckets: where nothing was said there is no point."""
    begin = now_t - FINE_WINDOW_S
    return tuple(_point(bucket) for bucket in speed.fine if bucket.start_t >= begin)


def _point(bucket: Bucket) -> Point:
    return Point(t=bucket.start_t, low=bucket.low, high=bucket.high, mean=bucket.mean)


def _log(window: Window) -> LogView:
    track = window.logs.main()
    if track is None:
        gap = window.gaps.get("log")
        return LogView(note=gap.reason if gap else None)
    lines = list(track.lines)[-LOG_LINES:]
    if track.feed.partial:
        lines.append(track.feed.partial)
    grown_t = track.grown_t
    silent_s = max(window.now_t - grown_t, 0.0) if grown_t is not None else None
    state = track.sample.path_state
    note = None if state == "same" else f"{state}: the process writes {track.path}"
    if note is None and track.sample.skipped_bytes:
        note = f"{track.sample.skipped_bytes} bytes not read"
    return LogView(path=track.path, lines=tuple(lines), silent_s=silent_s, note=note)


def _host_line(host: HostSample | None) -> str | None:
    if host is None:
        return None
    parts = []
    if host.load1 is not None:
        parts.append(f"load {host.load1:.1f}" + (f"/{host.cpus}" if host.cpus else ""))
    if host.memory_available_bytes is not None:
        parts.append(f"{gib(host.memory_available_bytes)} GiB memory free")
    if host.disks:
        least = min(host.disks, key=lambda disk: disk.free_bytes)
        parts.append(f"{gib(least.free_bytes)} GiB free for {least.what}")
    return " · ".join(parts) or None
