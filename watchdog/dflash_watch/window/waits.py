"""Who waits for whom, by the beat page or by stacks: cycles, and whom everybody waits for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dflash_watch.frame import BeatWorker
from dflash_watch.readers.stacks import Comparison, ThreadChange

LEAST_WAIT_S = 3.0
"""A wait shorter than this is work in progress."""
BLOCKING = frozenset({"queue-get", "queue-put", "peer", "lock"})
ANY_ENDS = frozenset({"queue-get", "queue-put", "lock", "condition", "join"})
"""Waits that any other thread of the process might end."""
GIVERS = {"drafter": "target", "target": "loader", "main": "drafter"}
TAKERS = {"target": "drafter", "loader": "target"}


@dataclass(frozen=True, slots=True)
class Edge:
    """One worker waits: why, on which object, for whom (any of them will do for a queue)."""

    reason: str
    on: str | None
    targets: tuple[str, ...]
    since_s: float


@dataclass(frozen=True, slots=True)
class Waits:
    """The waits-for graph of one look."""

    edges: Mapping[str, Edge] = field(default_factory=dict)
    cycle: tuple[str, ...] = ()
    """Workers that wait for each other, in order; empty when there is no cycle."""
    awaited: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Worker that itself waits for nobody -> those that end up waiting for it."""


def read_waits(workers: Mapping[str, BeatWorker]) -> Waits:
    """The graph of everybody who has been waiting for longer than `LEAST_WAIT_S`."""
    edges = {}
    for worker in workers.values():
        edge = _edge(worker, workers)
        if edge is not None:
            edges[worker.name] = edge
    cycle = _cycle({name: edge for name, edge in edges.items() if len(edge.targets) == 1})
    if not cycle:
        cycle = _cycle({name: edges[name] for name in _stuck(edges)})
    return _waits(edges, cycle)


def _waits(edges: Mapping[str, Edge], cycle: tuple[str, ...]) -> Waits:
    awaited: dict[str, list[str]] = {}
    for name in edges:
        for sink in _sinks(name, edges):
            awaited.setdefault(sink, []).append(name)
    return Waits(edges, cycle, {sink: tuple(names) for sink, names in awaited.items()})


def read_stack_waits(comparison: Comparison) -> Waits:
    """The same by stacks alone, of threads that did not move.

    Stacks tell neither the owner of a lock nor whose queue it is: every thread that could end a
    wait counts, so a circle is claimed only where nobody is left who could.
    """
    alive = [one for one in comparison.threads if not one.helper and one.change != "gone"]
    roles = {one.name: one.name.rsplit("-", 1)[0] for one in alive if one.name}
    edges = {}
    for one in alive:
        if one.name and one.change in ("blocked", "still"):
            targets = _enders(one, alive, roles)
            if targets:
                edges[one.name] = Edge(one.wait, None, targets, comparison.span_s)
    return _waits(edges, tuple(sorted(_stuck(edges))))


def _enders(
    waiting: ThreadChange, alive: Sequence[ThreadChange], roles: Mapping[str, str]
) -> tuple[str, ...]:
    """Threads that could end this wait."""
    others = [one for one in alive if one.name and one.name != waiting.name]
    sides = {"queue-get": GIVERS, "queue-put": TAKERS}.get(waiting.wait, {})
    role = sides.get(roles[str(waiting.name)])
    if waiting.wait == "peer":
        role = roles[str(waiting.name)]
    named = tuple(str(one.name) for one in others if roles[str(one.name)] == role)
    if named or waiting.wait not in ANY_ENDS:
        return named
    return tuple(
        str(one.name) for one in others if (one.wait, one.leaf) != (waiting.wait, waiting.leaf)
    )


def _edge(worker: BeatWorker, workers: Mapping[str, BeatWorker]) -> Edge | None:
    waited = worker.wait_age_s or 0.0
    if worker.wait not in BLOCKING or worker.state != "running" or waited < LEAST_WAIT_S:
        return None
    if worker.waits_for is not None and worker.waits_for in workers:
        targets: tuple[str, ...] = (worker.waits_for,)
    else:
        sides = {"queue-get": GIVERS, "queue-put": TAKERS}.get(worker.wait, {})
        role = sides.get(worker.role)
        targets = tuple(one.name for one in workers.values() if one.role == role)
    return Edge(worker.wait, worker.wait_object, targets, waited)


def _stuck(edges: Mapping[str, Edge]) -> set[str]:
    """Those that nobody outside of them can set free."""
    stuck = {name for name, edge in edges.items() if edge.targets}
    while True:
        free = {name for name in stuck if any(one not in stuck for one in edges[name].targets)}
        if not free:
            return stuck
        stuck -= free


def _cycle(edges: Mapping[str, Edge]) -> tuple[str, ...]:
    for start in edges:
        path = [start]
        while path[-1] in edges:
            following = next((one for one in edges[path[-1]].targets if one in edges), None)
            if following is None:
                break
            if following in path:
                return tuple(path[path.index(following) :])
            path.append(following)
    return ()


def _sinks(name: str, edges: Mapping[str, Edge]) -> set[str]:
    """Workers at the end of the chain that wait for nobody themselves."""
    sinks: set[str] = set()
    seen, ahead = {name}, list(edges[name].targets)
    while ahead:
        one = ahead.pop()
        if one in seen:
            continue
        seen.add(one)
        if one in edges:
            ahead.extend(edges[one].targets)
        else:
            sinks.add(one)
    return sinks
