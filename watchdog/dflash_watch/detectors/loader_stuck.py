"""The training thread waits for a data loader that gives nothing.

Sees:       stack samples: a thread that stands in a data loader's hand-over in all of them while no
            step is made; the loader's worker processes and what they do.
Means:      workers are dead, blocked or cannot hand over; or the loader waits for them to end.
Wrong when: one batch takes longer than the learned limit to read (a first pass over cold storage).
Source:     docs/verdicts.md, "stack samples"; readers/places.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dflash_watch.detectors.base import Answer, Detector, Example, View
from dflash_watch.detectors.examples import example, standing, twice
from dflash_watch.detectors.stuck import Stuck, is_silent, stuck_symptom, stuck_threads
from dflash_watch.model import Evidence, EvidenceKind, Severity, Source
from dflash_watch.readers.places import data_stage

WORKER = "_worker_loop"
STAGES = {
    "next": "waits for a batch that the data loader does not give",
    "start": "waits for the data loader to start",
    "shutdown": "waits for the data loader's workers to end",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """None: a step is due by the learned limit."""


def detect(view: View, _params: Params) -> Iterator[Answer]:
    """The consumer decides; workers that wait for orders are in every loader."""
    if not is_silent(view):
        return
    stuck = list(stuck_threads(view))
    consumers = [one for one in stuck if one.place == "data" and not _is_worker(one)]
    if consumers:
        text = STAGES[data_stage(consumers[0].frames)]
        own = [one for one in stuck if _is_worker(one) and _works_for(view, one, consumers[0])]
        workers = _workers(view, consumers[0], own)
        yield stuck_symptom(view, consumers[0], Severity.CRITICAL, text, *workers)


def _is_worker(one: Stuck) -> bool:
    return any(frame.name.endswith(WORKER) for frame in one.frames)


def _works_for(view: View, worker: Stuck, consumer: Stuck) -> bool:
    """Is it one of this consumer's, as far as is known."""
    process = view.window.tracks.process(worker.pid)
    return process is None or process.sample.ppid == consumer.pid


def _workers(view: View, consumer: Stuck, waiting: list[Stuck]) -> Iterator[Evidence]:
    """What is known of the loader's own processes."""
    tracks = view.window.tracks
    children = [one for one in tracks.processes.values() if one.sample.ppid == consumer.pid]
    alive = [one.track.state for one in children if one.sample.is_python]
    gone = [one for one in tracks.gone_processes if one.sample.ppid == consumer.pid]
    if waiting:
        text = f"process {waiting[0].pid}, a worker of it, stands in {waiting[0].leaf}"
    elif alive:
        text = f"{len(alive)} child processes are there, in state {' '.join(sorted(set(alive)))}"
    elif any(one.sample.is_python for one in gone):
        text = "no worker process is there any more"
    else:
        return
    yield Evidence(kind=EvidenceKind.FOR, text=text, source=Source.PROCESS)


def firing() -> Example:
    """The main thread in the queue of the loader, twice."""
    held = standing(10, "MainThread", "queue.py:get", "torch/utils/data/dataloader.py:_get_data")
    return example(twice(held), subject="run")


def clear() -> Example:
    """A worker of the loader that waits for orders, while the main thread is elsewhere."""
    idle = standing(
        12, "MainThread", "multiprocessing/queues.py:get",
        "torch/utils/data/_utils/worker.py:_worker_loop",
    )  # fmt: skip
    return example(twice(standing(10, "MainThread", "train.py:step"), idle))


DETECTOR = Detector(detect=detect, params=Params(), firing=firing, clear=clear)
