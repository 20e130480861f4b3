"""A rank stands somewhere else while the other ranks wait where all have to meet.

Sees:       stack samples of the ranks' main threads over the suspicion: some stand in a collective,
            in the backward pass or at their device, another one stands elsewhere without CPU.
Means:      the one that stands elsewhere keeps all the others waiting.
Wrong when: it does slow work of its own that uses no CPU, such as one large download.
Source:     docs/verdicts.md, "Stack samples".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from dflash_watch.detectors.base import Answer, Detector, Example, View, symptom
from dflash_watch.detectors.examples import PID, example, frames, log, process, stacks, standing
from dflash_watch.detectors.stuck import is_silent
from dflash_watch.model import Evidence, EvidenceKind, Severity, Source
from dflash_watch.readers.places import place_of
from dflash_watch.readers.stacks import ThreadChange
from dflash_watch.readers.waitwords import WAIT_WORDS
from dflash_watch.window.crew import leaders

MEETS = frozenset({"collective", "device"})
BACKWARD = re.compile(r"(?:^|/)torch/autograd/(?:graph|__init__)\.py$")
"""Gradients are averaged in there: without native frames the wait for peers shows as this."""
NEAR = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """None: a step is due by the learned limit."""


def detect(view: View, _params: Params) -> Iterator[Answer]:
    """Loaders, loggers and lock files have rules of their own; a rank that moves is not accused."""
    if not is_silent(view):
        return
    crew = leaders(view.window.tracks)
    stood = {rank: _main_thread(view, one.sample.pid) for rank, one in crew.items()}
    known = {rank: one for rank, one in stood.items() if one is not None}
    if any(one.change in ("moving", "unknown", "new") for one in known.values()):
        return
    waiting = {rank: one for rank, one in known.items() if _meets(one)}
    absent = {rank: one for rank, one in known.items() if rank not in waiting}
    if not waiting or not absent or not all(map(_is_idle, absent.values())):
        return
    rank, first = next(iter(absent.items()))
    text = f"rank-{rank} (process {crew[rank].sample.pid}) does not come: its main thread stands in"
    text += f" {first.leaf} without CPU; {_names(waiting)} {_verb(waiting)} for it"
    since_t = view.now_t - (view.age_s() or view.progress.still_s(view.window))
    facts = [_fact(number, one) for number, one in (*waiting.items(), *absent.items())]
    subject = _names(absent)
    yield symptom(subject, Severity.CRITICAL, since_t, text, Source.STACKS, *facts[:8])


def _main_thread(view: View, pid: int) -> ThreadChange | None:
    compared = view.standing.get(pid)
    threads = compared.threads if compared is not None else ()
    return next((one for one in threads if one.tid == pid), None)


def _meets(one: ThreadChange) -> bool:
    """Does it stand where all ranks have to come."""
    near = (frame.file.replace("\\", "/") for frame in one.frames[:NEAR])
    return one.wait in MEETS or any(map(BACKWARD.search, near))


def _is_idle(one: ThreadChange) -> bool:
    """Stands still, and for nothing that is named elsewhere."""
    return one.change in ("blocked", "still") and place_of(one.frames, one.wait) is None


def _names(ranks: Mapping[int, ThreadChange]) -> str:
    return ", ".join(f"rank-{rank}" for rank in ranks)


def _verb(ranks: Mapping[int, ThreadChange]) -> str:
    return "waits" if len(ranks) == 1 else "wait"


def _fact(rank: int, one: ThreadChange) -> Evidence:
    cores = "" if one.cpu_ratio is None else f", {one.cpu_ratio:.2f} cores"
    text = f"rank-{rank} stands in {one.leaf} ({WAIT_WORDS.get(one.wait, one.wait)}{cores})"
    return Evidence(kind=EvidenceKind.FOR, text=text, source=Source.STACKS)


def _two_ranks(*places: str) -> Example:
    """Rank 0 waits in the backward pass, rank 1 in `places`, for twelve seconds."""

    def crew(i: int) -> tuple[object, ...]:
        ticks = 50 * min(i, 14)
        ranks = (process(i, pid=11 + k, ppid=PID, rank=k, cpu_ticks=ticks) for k in (0, 1))
        return (process(i, cpu_ticks=1), *ranks)

    waits = standing(11, "MainThread", "torch/autograd/graph.py:_engine_run_backward", "a.py:step")
    other = standing(12, "MainThread", *places)
    steps = frames(14, processes=crew, logs=lambda i: log(f"step {i}/900\n"))
    silent = frames(13, start=14, processes=crew)
    samples = [
        stacks(label if pid == 11 else f"{label}/{pid}", i, one, pid=pid)
        for label, i in (("A", 22), ("B", 25))
        for pid, one in ((11, waits), (12, other))
    ]
    return example(steps, silent, tuple(samples), subject="rank-1")


def firing() -> Example:
    """It sleeps in a loop of its own."""
    return _two_ranks("train.py:wait_for_file", "train.py:main")


def clear() -> Example:
    """It waits in the backward pass as well: nobody is absent."""
    return replace(_two_ranks("torch/autograd/graph.py:_engine_run_backward"), subject=None)


DETECTOR = Detector(detect=detect, params=Params(), firing=firing, clear=clear)
