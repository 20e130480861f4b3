"""A device operation does not come back: its GPU spins or rests, and a worker waits for it.

Sees:       a card at full use that does nothing, or a worker's own word that it waits for its
            device, for longer than the limit of the steps.
Means:      a kernel loops for ever, or its completion was lost.
Wrong when: one kernel honestly takes that long; then SMs, tensor cores or memory are in use.
Source:     docs/verdicts.md, "What a GPU does"; docs/run-directory.md, "beats".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from dflash_watch.detectors.base import Answer, Detector, Example, View, symptom
from dflash_watch.detectors.examples import beats, example, frames, log, process, worker
from dflash_watch.detectors.ranks import ranks_of
from dflash_watch.frame import BeatWorker, GpuProcess, GpuSample
from dflash_watch.model import Severity, Source
from dflash_watch.units import duration
from dflash_watch.window.gpuload import Load
from dflash_watch.window.gpus import GpuTrack

WORKS = frozenset({Load.WORK, Load.MEMORY, Load.HALF, Load.ALLOCATOR, Load.HOST})
"""Something moves there: whoever waits for it waits for work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """None: the limit is learned."""


def detect(view: View, _params: Params) -> Iterator[Answer]:
    """Workers that wait for their device, then cards that spin for a run of one rank."""
    if view.progress.phase is not None or not view.is_due():
        return
    told = False
    for one in view.window.told.workers.values():
        waited_s = one.wait_age_s or 0.0
        if one.state != "running" or one.wait != "device" or waited_s <= view.limit.seconds:
            continue
        card = _card_of(view, one)
        if card is not None and card.reading is not None and card.reading.load in WORKS:
            continue
        told = True
        text = f"{one.name} has waited {duration(waited_s)} for its device{_what(card)}"
        yield symptom(one.name, Severity.CRITICAL, view.now_t - waited_s, text, Source.BEATS)
    if not told:
        yield from _by_card(view)


def _by_card(view: View) -> Iterator[Answer]:
    """One process, a card of it spins: several ranks that spin are a collective."""
    ranks = ranks_of(view)
    if len({one.process.sample.pid for one in ranks}) != 1 or not view.is_overdue():
        return
    for one in ranks:
        if one.spins:
            since_t = min(one.card.reading_since_t, view.now_t)
            text = f"gpu{one.gpu} spins for {duration(view.now_t - since_t)}: {one.gpu_text}"
            text += one.card.energy_text(since_t)
            yield symptom(f"gpu{one.gpu}", Severity.CRITICAL, since_t, text, Source.GPU)


def _card_of(view: View, worker: BeatWorker) -> GpuTrack | None:
    found = re.fullmatch(r"cuda:(\d+)", worker.device or "")
    return view.window.gpus.tracks.get(int(found[1])) if found is not None else None


def _what(card: GpuTrack | None) -> str:
    if card is None or card.reading is None:
        return ""
    text = f"; its card: {card.reading.load.value}, {card.reading.text}"
    return text + card.energy_text(card.reading_since_t)


def _run(sm: float, moves: float) -> Example:
    """A card at full use; steps end after fourteen seconds."""

    def cards(i: int) -> tuple[GpuSample, ...]:
        busy = i < 14
        own = GpuProcess(pid=10, memory_bytes=5 * 2**30, pid_space="container")
        used = (0.9, 0.3) if busy else (sm, moves)
        return (
            GpuSample(index=0, utilization_ratio=1.0, sm_ratio=used[0], tensor_ratio=used[1],
                      dram_ratio=used[1], power_watts=122.0, power_limit_watts=700.0,
                      processes=(own,)),
        )  # fmt: skip

    def logs(i: int) -> object:
        return log(f"step {i}/900\n" if i < 14 else "")

    return example(
        frames(32, gpus=cards, processes=lambda i: (process(i, cpu_ticks=100 * i),), logs=logs),
        subject=None if moves else "gpu0",
    )


def firing() -> Example:
    """One thread of a kernel spins."""
    return _run(0.008, 0.0)


def clear() -> Example:
    """A long kernel that computes, and a worker that waits for it."""
    long = _run(0.9, 0.3)
    waits = frames(
        2, start=40, beats=beats(worker("drafter-0", 3.0, wait="device", device="cuda:0"))
    )
    return Example(records=(*long.records, *waits))


DETECTOR = Detector(detect=detect, params=Params(), firing=firing, clear=clear)
