"""Some ranks spin on the GPU in a collective and no step is made: a peer does not come.

Sees:       cards at full use that do nothing, no step, and the ranks whose card rests.
Means:      a rank is stuck outside the collective, or the ranks wait in different ones.
Wrong when: one rank works alone for long while the others wait at a barrier; then it is busy.
Source:     docs/verdicts.md, "What a GPU does"; tests/recorded/gpu.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dflash_watch.detectors.base import Answer, Detector, Example, View, missing, symptom
from dflash_watch.detectors.examples import example, frames, log, process
from dflash_watch.detectors.ranks import Rank, ranks_of
from dflash_watch.frame import GpuProcess, GpuSample
from dflash_watch.model import Evidence, EvidenceKind, Severity, Source
from dflash_watch.units import duration


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Limits."""

    least_s: float = 5.0
    """Silence of the steps below which a wait for peers is ordinary."""
    least_ranks: int = 2


def detect(view: View, params: Params) -> Iterator[Answer]:
    """The ranks that wait, and those that do not come."""
    if view.progress.phase is not None or (view.age_s() or 0.0) < params.least_s:
        return
    ranks = ranks_of(view)
    waiting = [one for one in ranks if one.spins]
    if not waiting:
        if not ranks and any(card.spins for card in view.window.gpus.tracks.values()):
            yield missing("run", "which process uses which GPU: the driver names none of the run's")
        return
    absent = [one for one in ranks if one.rests]
    if len(waiting) + len(absent) < max(params.least_ranks, len(ranks)):
        return  # one card only, or a rank works: the others wait for it, and it will come
    if absent and not all(one.sleeps for one in absent):
        return  # it computes on the host, reads or writes
    since_t = max(one.card.reading_since_t for one in (*waiting, *absent))
    yield _symptom(view, waiting, absent, since_t)


def guilty_pid(view: View) -> int | None:
    """Process of the first rank that does not come: whose stack tells why."""
    ranks = ranks_of(view)
    if not any(one.spins for one in ranks):
        return None
    return next((one.process.sample.pid for one in ranks if one.rests), None)


def _symptom(view: View, waiting: Sequence[Rank], absent: Sequence[Rank], since_t: float) -> Answer:
    names = ", ".join(one.name for one in waiting)
    last_t = view.progress.last_step_t
    since_t = min(since_t, view.now_t) if last_t is None else min(last_t, since_t)
    if absent:
        first = absent[0]
        text = f"{', '.join(one.name for one in absent)} does not come: its GPU does nothing"
        text += f" and its process {first.process.sample.pid} sleeps; {names} "
        text += "waits" if len(waiting) == 1 else "wait"
    else:
        text = f"all of {names} spin in a collective: they wait in different ones, or for another"
    text += f" for {duration(view.now_t - since_t)}"
    facts = [*map(_fact, waiting), *map(_fact, absent)][:8]
    subject = ", ".join(one.name for one in absent) or "run"
    return symptom(subject, Severity.CRITICAL, since_t, text, Source.GPU, *facts)


def _fact(rank: Rank) -> Evidence:
    cores = "" if rank.cores is None else f"; its process uses {rank.cores:.2f} cores"
    where = f", in {rank.process.sample.wchan}" if rank.process.sample.wchan else ""
    text = f"{rank.name} on gpu{rank.gpu}: {rank.gpu_text}{cores}{where}"
    return Evidence(kind=EvidenceKind.FOR, text=text, source=Source.GPU)


def _story(*, one_works: bool) -> Example:
    """Two ranks that make steps; then one card spins and the other rests or works."""

    def cards(i: int) -> tuple[GpuSample, ...]:
        hangs = i >= 14
        far = 0.9 if one_works or not hangs else 0.0
        return (_card(0, 1.0, 0.18 if hangs else 0.9), _card(1, far, far))

    def processes(i: int) -> tuple[object, ...]:
        stuck = i >= 14
        first = process(i, pid=11, rank=0, cpu_ticks=100 * i)
        second = process(i, pid=12, rank=1, cpu_ticks=100 * (14 if stuck else i))
        return (process(i, cpu_ticks=1), first, second)

    def logs(i: int) -> object:
        return log(f"step {i}/900\n" if i < 14 else "")

    subject = None if one_works else "rank-1"
    return example(frames(26, gpus=cards, processes=processes, logs=logs), subject=subject)


def _card(index: int, used: float, sm: float) -> GpuSample:
    held = GpuProcess(pid=11 + index, memory_bytes=5 * 2**30, pid_space="container")
    moves = 0.3 if sm > 0.5 else 0.0
    return GpuSample(
        index=index, utilization_ratio=used, sm_ratio=sm, tensor_ratio=moves, dram_ratio=moves,
        power_watts=690.0 if moves else 122.0, power_limit_watts=700.0, processes=(held,),
    )  # fmt: skip


def firing() -> Example:
    """One waits in an all-reduce, the other sleeps."""
    return _story(one_works=False)


def clear() -> Example:
    """The other computes: it will come."""
    return _story(one_works=True)


DETECTOR = Detector(detect=detect, params=Params(), firing=firing, clear=clear)
