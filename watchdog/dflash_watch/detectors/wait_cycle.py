"""Workers wait for each other: nobody of them can go on.

Sees:       the waits-for graph of the beat page (peer, owner of the lock, sides of the queue);
            without one, stack samples in which threads stand at locks, or all threads of the only
            process wait for each other, and nobody moves.
Means:      a deadlock: a lock cycle, or a queue whose two sides both wait.
Wrong when: a timed wait in the cycle gives up by itself.
Source:     docs/run-directory.md, "beats"; window/waits.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dflash_watch.detectors.base import (
    Answer,
    Detector,
    Example,
    View,
    frozen_threads,
    missing,
    symptom,
)
from dflash_watch.detectors.examples import example, stuck_after, worker
from dflash_watch.model import Evidence, EvidenceKind, Severity, Source
from dflash_watch.readers.stacks import Comparison
from dflash_watch.window.waits import Edge, read_stack_waits


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Limits."""

    least_s: float = 4.0
    """Each member has waited for at least so long."""


INSIDE = frozenset({"queue-get", "queue-put", "lock", "condition", "join"})
"""Waits that only another thread of the same process can end."""


def detect(view: View, params: Params) -> Iterator[Answer]:
    """A cycle in which everybody has waited long enough."""
    if not view.window.told.workers:
        yield from _by_stacks(view)
        return
    cycle, edges = view.waits.cycle, view.waits.edges
    if not cycle or min(edges[name].since_s for name in cycle) < params.least_s:
        return
    told = [_told(name, edges[name], cycle) for name in cycle]
    since_t = view.now_t - min(edges[name].since_s for name in cycle)
    text = "; ".join(told)
    rest = [name for name in edges if name not in cycle]
    more = (
        [Evidence(kind=EvidenceKind.FOR, text=f"behind them wait {', '.join(rest)}",
                  source=Source.BEATS)] if rest else []
    )  # fmt: skip
    yield symptom(", ".join(sorted(cycle)), Severity.CRITICAL, since_t, text, Source.BEATS, *more)


def _by_stacks(view: View) -> Iterator[Answer]:
    """Without a beat page: threads at locks, or all threads waiting for each other."""
    frozen = frozen_threads(view)
    locked = [one for one in frozen if one.wait in {"lock", "file-lock"}]
    inside = all(one.wait in INSIDE for one in frozen) and len(view.window.tracks.processes) == 1
    if view.comparison is not None and len(locked) < 2 and not inside:
        yield missing("run", "a circle of waits: the stacks taken show none that is closed")
        return
    if view.comparison is None or not view.is_due():
        yield missing("run", "who waits for whom: neither the run nor its stacks tell")
        return
    span_s = view.comparison.span_s
    if len(locked) >= 2:
        names = sorted(one.name or f"thread {one.tid}" for one in locked)
        text = f"{', '.join(names)} stand at locks in all samples over {span_s:.0f} s; nobody moves"
    elif len(frozen) >= 2:
        locked, names = list(frozen), ["run"]
        text = f"each of {len(frozen)} threads waits for another over {span_s:.0f} s; nobody moves"
        names = _named(view.comparison, names)
    else:
        return
    more = [
        Evidence(kind=EvidenceKind.FOR, text=f"{one.name}: {one.leaf}", source=Source.STACKS)
        for one in locked[:4]
    ]
    unseen = Evidence(
        kind=EvidenceKind.MISSING, text="owners of the locks: not visible from outside",
        source=Source.STACKS,
    )  # fmt: skip
    since_t = view.now_t - (view.age_s() or 0.0)
    yield symptom(", ".join(names), Severity.CRITICAL, since_t, text, Source.STACKS, *more, unseen)


def _named(compared: Comparison, names: list[str]) -> list[str]:
    """The workers in the circle, where the run gives its threads names of their own."""
    circle = read_stack_waits(compared).cycle
    own = [one for one in circle if one != "MainThread" and not one.startswith("Thread-")]
    return own if len(own) >= 2 else names


def _told(name: str, edge: Edge, cycle: tuple[str, ...]) -> str:
    awaited = next(one for one in edge.targets if one in cycle)
    if edge.reason == "lock":
        return f"{name} waits for lock {edge.on or '?'} owned by {awaited}"
    return f"{name} waits ({edge.reason}{f' {edge.on}' if edge.on else ''}) for {awaited}"


def firing() -> Example:
    """Two drafters, two locks."""
    return example(
        stuck_after(
            14, 6,
            lambda s: worker("drafter-0", s, wait="lock", wait_object="b", waits_for="drafter-1"),
            lambda s: worker("drafter-1", s, wait="lock", wait_object="a", waits_for="drafter-0"),
        ),
        subject="drafter-0, drafter-1",
    )  # fmt: skip


def clear() -> Example:
    """One waits for a lock whose owner works."""
    return example(
        stuck_after(
            14, 6,
            lambda s: worker("drafter-0", s, wait="lock", wait_object="b", waits_for="drafter-1"),
            lambda _: worker("drafter-1", 0.1),
        )
    )  # fmt: skip


DETECTOR = Detector(detect=detect, params=Params(), firing=firing, clear=clear)
