"""A bounded queue that keeps the order: batch i goes to lane i mod lanes, whoever made it first.

So a run is repeatable although its producers race. An item is admitted when its number lies within
`capacity` of the oldest one not yet taken; the item everybody waits for therefore always fits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from dflash_events import Worker

from dflash_train.fate import Fate

T = TypeVar("T")
RECHECK_S = 1.0


class QueueClosedError(Exception):
    """All producers have ended and this lane has had its last item."""


class OrderedQueue(Generic[T]):
    """Items by number, delivered in order to each lane.

    Args:
        name: as waits name it, `hs-queue`.
        capacity: numbers admitted beyond the oldest one not taken; at least the number of lanes.
        lanes: consumers with an own sequence; several workers may share a lane.
        producers: names of all who give; the queue is closed when each has closed.
        first: number of the first item, a multiple of `lanes`.
        fate: ends all waits.
        shown_to_takers: takers show this queue's depth in their slot; otherwise only givers do, and
            a worker between two queues shows the one it gives to.
    """

    def __init__(
        self,
        name: str,
        *,
        capacity: int,
        lanes: int,
        producers: Sequence[str],
        first: int,
        fate: Fate,
        shown_to_takers: bool,
    ) -> None:
        if capacity < lanes or first % lanes:
            raise ValueError(f"{name}: {capacity} places for {lanes} lanes from {first} on")
        self.name, self.capacity = name, capacity
        self._items: dict[int, T] = {}
        self._next = [first + lane for lane in range(lanes)]
        self._open = set(producers)
        self._fate = fate
        self._shown_to_takers = shown_to_takers
        self._changed = fate.condition()
        self._holder: dict[int, str] = {}

    @property
    def depth(self) -> int:
        """Items stored."""
        return len(self._items)

    def put(self, index: int, item: T, worker: Worker, consumers: Sequence[str]) -> None:
        """Store item `index`, waiting until it is admitted.

        Args:
            index: its number; each number once.
            item: what is stored.
            worker: who gives.
            consumers: name of each lane's worker, for saying who is waited for; empty if shared.
        """

        def is_admitted() -> bool:
            return index < min(self._next) + self.capacity

        def slowest() -> str | None:
            return consumers[self._next.index(min(self._next))] if consumers else None

        with self._changed:
            self._wait("queue-put", is_admitted, slowest, worker)
            self._items[index] = item
            worker.queue(len(self._items), self.capacity)
            self._changed.notify_all()

    def get(self, lane: int, worker: Worker, maker: Callable[[int], str | None]) -> T:
        """The lane's next item, waiting until it is there.

        Args:
            lane: which sequence.
            worker: who takes.
            maker: number to the worker that is making it, None while nobody is.

        Raises:
            QueueClosedError: there will be none.
        """

        def is_there() -> bool:
            return self._next[lane] in self._items or not self._open

        def who() -> str | None:
            return maker(self._next[lane])

        with self._changed:
            self._wait("queue-get", is_there, who, worker)
            index = self._next[lane]
            if index not in self._items:
                raise QueueClosedError(self.name)
            item = self._items.pop(index)
            self._holder[index] = worker.name
            self._holder.pop(index - 64 * self.capacity, None)
            self._next[lane] += len(self._next)
            if self._shown_to_takers:
                worker.queue(len(self._items), self.capacity)
            self._changed.notify_all()
            return item

    def holder(self, index: int) -> str | None:
        """Who took item `index`, while that is remembered."""
        return self._holder.get(index)

    def close(self, producer: str) -> None:
        """`producer` has given its last item."""
        with self._changed:
            self._open.discard(producer)
            self._changed.notify_all()

    def _wait(
        self,
        reason: str,
        is_ready: Callable[[], bool],
        who: Callable[[], str | None],
        worker: Worker,
    ) -> None:
        self._fate.check()
        if is_ready():
            return
        on = who()
        with worker.waiting(reason, object=self.name, on=on):
            while not is_ready():
                self._fate.check()
                self._changed.wait(RECHECK_S)
                if (now := who()) != on:
                    on = now
                    worker.waits_on(on)
