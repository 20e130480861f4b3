"""What the run itself says: events, beats, manifest."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dflash_watch.frame import BeatPage, BeatWorker, Ticker
from dflash_watch.window.intake import clean_event
from dflash_watch.window.speed import Throughput

KEPT = 100
HOW_IT_ENDS = ("done", "failed", "stopped")
"""An exit event tells one of these, or a code: else it is none."""
LAST_STEP_S = 5.0
"""A step may be told so long after the exit event: both are on their way at once."""


@dataclass(slots=True)
class OpenPhase:
    """A phase that has begun and not ended."""

    name: str
    since_t: float
    budget_s: float | None = None
    detail: str | None = None
    worker: str | None = None


Event = Mapping[str, Any]


class Told:
    """Events, beats and manifest of one run."""

    def __init__(self) -> None:
        self.manifest: Mapping[str, Any] | None = None
        self.last_seq = -1
        self.phases: list[OpenPhase] = []
        self.throughput = Throughput()
        self.newest: Event | None = None
        """Newest `throughput` event."""
        self.reported: deque[Event] = deque(maxlen=KEPT)
        """`throughput` events, newest last."""
        self.steps: deque[tuple[float, int]] = deque(maxlen=KEPT)
        """(moment, step) of throughput and heartbeat events."""
        self.failed: deque[Event] = deque(maxlen=KEPT)
        self.tuning: dict[str, float] = {}
        """Kernel and key -> since when it is being tuned."""
        self.exit: Event | None = None
        self.beats: BeatPage | None = None
        self.quality: deque[Event] = deque(maxlen=KEPT)
        """`quality` events, newest last."""
        self.ticks: deque[tuple[float, Ticker]] = deque(maxlen=KEPT)
        """(moment, ticker) of the newest looks in which it had ticked."""
        self.beats_t: float | None = None
        self.workers: dict[str, BeatWorker] = {}
        self.depths: deque[tuple[float, int]] = deque(maxlen=KEPT)
        self.items: dict[str, deque[tuple[float, int]]] = {}
        self.capacity: int | None = None

    def take_events(
        self, events: tuple[dict[str, Any], ...] | None, now_t: float, ahead_s: float = 0.0
    ) -> list[Event]:
        """Take new events; one that was seen already is left out. Returns the new ones."""
        fresh: list[Event] = []
        for event in (clean_event(one, now_t, ahead_s) for one in events or ()):
            seq = event.get("seq")
            if isinstance(seq, int):
                if seq <= self.last_seq:
                    continue
                self.last_seq = seq
            fresh.append(event)
            self._note(event)
        return fresh

    def _note(self, event: Event) -> None:
        t = event["t"]
        match event.get("kind"):
            case "phase":
                self._phase(event, t)
            case "throughput":
                self._report(event, t)
            case "heartbeat":
                self._step(event, t)
            case "worker-failed":
                self.failed.append(event)
            case "autotune":
                self._tune(f"{event.get('kernel')} {event.get('key')}", event)
            case "quality":
                if event.get("acceptance_length") is not None:
                    self.quality.append(event)
            case "exit" if event.get("reason") in HOW_IT_ENDS or isinstance(event.get("code"), int):
                self.exit = event

    def _report(self, event: Event, t: float) -> None:
        self.newest = event
        self.reported.append(event)
        self._step(event, t)
        tokens = event.get("tokens_per_s")
        if tokens is not None:
            self.throughput.take(t, tokens)
        depth, capacity = event.get("queue_depth"), event.get("queue_capacity")
        self.capacity = capacity if isinstance(capacity, int) else self.capacity
        if isinstance(depth, int):
            self.depths.append((t, depth))

    def _step(self, event: Event, t: float) -> None:
        step = event.get("step")
        if isinstance(step, int) and (not self.steps or step != self.steps[-1][1]):
            self.steps.append((t, step))
            if self.exit is not None and t - self.exit["t"] > LAST_STEP_S:
                self.exit = None  # what makes steps has not ended, whatever was written before

    def _tune(self, key: str, event: Event) -> None:
        if event.get("edge") != "begin":
            self.tuning.pop(key, None)
            return
        self.tuning[key] = event["t"]
        if len(self.tuning) > KEPT:  # begun and never ended: the oldest is forgotten
            del self.tuning[next(iter(self.tuning))]

    def _phase(self, event: Event, t: float) -> None:
        name, worker = str(event.get("name")), event.get("worker")
        if event.get("edge") == "begin":
            budget, detail = event.get("budget_s"), event.get("detail")
            told = str(detail) if detail is not None else None
            self.phases.append(OpenPhase(name, t, budget, told, worker))
            del self.phases[:-KEPT]
            return
        for phase in reversed(self.phases):
            if phase.name == name and phase.worker == worker:
                self.phases.remove(phase)
                return

    def take_beats(self, page: BeatPage | None, t: float) -> None:
        """Take the beat page; one left over by another process is not believed."""
        if page is None or page.foreign:
            return
        before = self.beats.ticker if self.beats is not None else None
        if page.ticker is not None and (before is None or page.ticker.beats != before.beats):
            self.ticks.append((t, page.ticker))
        self.beats, self.beats_t = page, t
        self.workers = {worker.name: worker for worker in page.workers}
        depths = [w.queue_depth for w in page.workers if w.queue_depth is not None]
        capacities = [w.queue_capacity for w in page.workers if w.queue_capacity]
        if capacities:
            self.capacity = max(capacities)
        if depths:
            self.depths.append((t, max(depths)))
        for worker in page.workers:
            if worker.items is not None:
                past = self.items.setdefault(worker.name, deque(maxlen=30))
                past.append((t, worker.items))

    def in_role(self, role: str) -> list[BeatWorker]:
        """Workers of one role, by their beat slots."""
        return [worker for worker in self.workers.values() if worker.role == role]

    def role_of(self, name: str) -> str | None:
        """Role of a worker, from its slot, the manifest, or its name."""
        if name in self.workers:
            return self.workers[name].role
        for worker in (self.manifest or {}).get("workers") or ():
            if worker.get("name") == name:
                return str(worker.get("role"))
        stem = name.rstrip("0123456789").rstrip("-_ ")
        return stem if stem in {"target", "drafter", "loader", "main"} else None
