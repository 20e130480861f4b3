"""Workers that wait for nobody, make no progress and burn no CPU. No detector of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dflash_watch.detectors.base import Answer, View, missing, symptom
from dflash_watch.frame import BeatWorker
from dflash_watch.model import Severity, Source
from dflash_watch.roles import gpu_roles
from dflash_watch.units import duration
from dflash_watch.window.gpuload import SPINNING, Load
from dflash_watch.window.gpus import GpuTrack

COMPUTES = 0.01
"""Cores of one thread above which it works, however long its item takes on a busy machine."""
CPU_WINDOW_S = 4.0
TICKS_S = 2.0
"""A ticker older than this says that no thread can run: then nobody is idle by himself."""
RESTS, RESTING_LOOKS = 0.2, 5
"""Share of the time below which a card rests, in so many newest looks."""
IDLE_S = 60.0
"""Between two bursts a card rests for seconds, not for a minute while its siblings work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Limits."""

    least_s: float = 5.0
    """Without progress for at least so long."""
    limit_share: float = 0.6
    """And for at least this share of the limit of steps."""
    untaught_s: float = 20.0
    """Limit that counts while none is learned."""


@dataclass(frozen=True, slots=True)
class Idle:
    """One idle worker and who suffers."""

    worker: BeatWorker
    since_s: float
    why: str


def side_that_rests(view: View, params: Params, *roles: str) -> Iterator[Answer]:
    """Idle workers of these roles for whom others wait; cards of the first of them that rest."""
    limit_s = view.limit.seconds if view.is_taught else params.untaught_s
    least_s = max(params.least_s, params.limit_share * limit_s)
    yield from resting_gpus(view, roles[0])
    for idle in [one for role in roles for one in idle_workers(view, role, least_s)]:
        text = f"{idle.worker.name} made no progress for {duration(idle.since_s)}; {idle.why}"
        since_t = view.now_t - idle.since_s
        yield symptom(idle.worker.name, Severity.CRITICAL, since_t, text, Source.BEATS)


def resting_gpus(view: View, role: str) -> Iterator[Answer]:
    """Cards of a role that do nothing for long while their siblings work, where no beats say more.

    Utilisation of a moment cannot tell an idle worker from one between bursts: that is said.
    """
    if view.window.told.workers:
        return
    tracks = view.window.gpus.tracks
    cards = {
        index: tracks[index]
        for index, own in gpu_roles(view.window, view.options).items()
        if own == role and index in tracks
    }
    stepping = view.progress.first_step_t is not None and not view.is_due()
    stepping = stepping and view.progress.phase is None
    for index, track in cards.items():
        others = [one for other, one in cards.items() if other != index]
        idle_s = _idle_s(track, view.now_t)
        if stepping and idle_s >= IDLE_S and 2 * sum(map(_works, others)) > len(others):
            text = f"gpu{index} did nothing for {duration(idle_s)} while its siblings work"
            text += f" ({track.reading.text})" if track.reading is not None else ""
            yield symptom(f"gpu{index}", Severity.WARNING, view.now_t - idle_s, text, Source.GPU)
            continue
        looks = list(track.looks)[-RESTING_LOOKS:]
        if looks and all(look.util is not None and look.util < RESTS for look in looks):
            count = "one sample" if len(looks) == 1 else f"{len(looks)} samples"
            yield missing(
                f"gpu{index}", f"whether GPU {index} rests or is between bursts: {count} of its use"
            )


def _idle_s(track: GpuTrack, now_t: float) -> float:
    """For how long it has done nothing at all; 0 while it oscillates or nobody can tell."""
    reading = track.reading
    return now_t - track.reading_since_t if reading and reading.load is Load.IDLE else 0.0


def _works(track: GpuTrack) -> bool:
    return track.reading is not None and track.reading.load not in {Load.IDLE, *SPINNING}


def idle_workers(view: View, role: str, least_s: float) -> Iterator[Idle]:
    """Idle workers of a role that others wait for, or whose queue gives them work or room."""
    told = view.window.told
    ticker = told.beats.ticker if told.beats is not None else None
    if view.progress.phase is not None or (ticker is not None and ticker.age_s > TICKS_S):
        return  # a phase explains it, or the interpreter lets nobody run
    for worker in told.in_role(role):
        since_s = worker.progress_age_s
        if worker.state != "running" or since_s is None or since_s < least_s:
            continue
        if worker.name in view.waits.edges or worker.wait in {"device", "io"}:
            continue
        if _computes(view, worker):
            continue
        waiting = view.waits.awaited.get(worker.name, ())
        if waiting:
            yield Idle(worker, since_s, f"{', '.join(sorted(waiting))} wait for it")
        elif _queue_calls(view, role):
            depth, capacity = told.depths[-1][1], told.capacity
            yield Idle(worker, since_s, f"the queue stands at {depth} of {capacity}")


def _queue_calls(view: View, role: str) -> bool:
    told = view.window.told
    if not told.depths or not told.capacity:
        return False
    depth = told.depths[-1][1]
    if role == "loader":
        return False
    return depth > 0 if role == "drafter" else depth < told.capacity


def _computes(view: View, worker: BeatWorker) -> bool:
    """It used a core just now, or waits for one."""
    window = view.window
    if worker.tid is None or window.frame is None:
        return False
    for (_, tid), track in window.tracks.threads.items():
        if tid == worker.tid:
            used = track.used_ticks(window.frame.boot_s - CPU_WINDOW_S)
            spent = used is not None and used[0] / window.ticks_per_s > COMPUTES * used[1]
            return spent or track.state == "R"
    return False
