"""A way out that never holds up the watching: a bounded queue and one daemon thread.

A terminal that stops reading, a full disk or a slow dashboard block only the thread behind their
own outlet. Knows nothing of what passes through.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Outlet(Generic[Item]):
    """Hands items over in order; beyond `capacity` the oldest waiting one is dropped and counted.

    Args:
        name: for the thread.
        consume: takes one item; may block; an OSError or ValueError it raises ends this outlet.
        capacity: items that may wait; 1 means "the newest only".
        on_end: called once, from the thread, with what ended it.
    """

    def __init__(
        self,
        name: str,
        consume: Callable[[Item], None],
        *,
        capacity: int,
        on_end: Callable[[Exception], None] | None = None,
    ) -> None:
        self._consume, self._on_end = consume, on_end
        self._waiting: deque[Item] = deque(maxlen=capacity)
        self._change = threading.Condition()
        self._closing = False
        self.dropped = 0
        self.failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._has_begun = False

    def put(self, item: Item) -> None:
        """Take an item; never raises, and blocks only while this machine has no thread left."""
        with self._change:
            if self.failure is not None or self._closing:
                return
            self.dropped += len(self._waiting) == self._waiting.maxlen
            self._waiting.append(item)
            self._change.notify()
            has_thread = self._has_begun or self._begin()
        if not has_thread:  # late is better than never
            self._pass_on(self._waiting.popleft())

    def close(self, timeout_s: float) -> bool:
        """Let what waits pass, for at most `timeout_s`; True when all of it did."""
        with self._change:
            self._closing = True
            self._change.notify()
        if self._has_begun:
            self._thread.join(timeout_s)
        return not self._thread.is_alive() and self.failure is None

    def _begin(self) -> bool:
        """Start the thread: not before it is needed, since a healthy run never uses most."""
        try:
            self._thread.start()
        except (RuntimeError, MemoryError):
            return False
        self._has_begun = True
        return True

    def _run(self) -> None:
        while (item := self._next()) is not None:
            self._pass_on(item[0])
            if self.failure is not None:
                return

    def _pass_on(self, item: Item) -> None:
        try:
            self._consume(item)
        except (OSError, ValueError) as error:
            self._end(error)

    def _next(self) -> tuple[Item] | None:
        with self._change:
            while not self._waiting:
                if self._closing:
                    return None
                self._change.wait()
            return (self._waiting.popleft(),)

    def _end(self, error: Exception) -> None:
        with self._change:
            self.failure = error
            self._waiting.clear()
        if self._on_end is not None:
            self._on_end(error)
