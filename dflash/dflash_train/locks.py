"""Named locks that know their owner, so that a beat can say which worker it waits for."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from dflash_events import Worker

from dflash_train.fate import Fate

RECHECK_S = 1.0


class NamedLock:
    """A mutual exclusion between workers.

    Args:
        name: as waits name it, `weights-of-drafter-0`.
        fate: a wait ends with the pipeline.
    """

    def __init__(self, name: str, fate: Fate) -> None:
        self.name = name
        self.owner: str | None = None
        self._lock = threading.Lock()
        self._fate = fate

    @contextmanager
    def held(self, worker: Worker) -> Iterator[None]:
        """Hold the lock; while waiting for it, say for whom.

        Raises:
            PipelineStoppedError: the pipeline ended while waiting.
        """
        if not self._lock.acquire(blocking=False):
            with worker.waiting("lock", object=self.name, on=self.owner):
                while not self._lock.acquire(timeout=RECHECK_S):
                    self._fate.check()
                    worker.waits_on(self.owner)
            if self._fate.is_over:
                self._lock.release()
                self._fate.check()
        self.owner = worker.name
        try:
            yield
        finally:
            self.owner = None
            self._lock.release()


class WarmUp:
    """First calls one worker at a time; nobody works until all have had theirs.

    Autotuners, tracing and compilers keep state of the whole process and none is safe to enter from
    two threads; and a tuner wants the memory before the run fills it.

    Args:
        names: all workers that warm up.
        fate: waits end with the pipeline.
    """

    def __init__(self, names: tuple[str, ...], fate: Fate) -> None:
        self.lock = NamedLock("warm-up", fate)
        self._missing = list(names)
        self._fate = fate
        self._changed = fate.condition()

    @contextmanager
    def turn(self, worker: Worker) -> Iterator[None]:
        """Alone in the process with what tunes and compiles; then wait for all others."""
        with self.lock.held(worker):
            yield
        with self._changed:
            self._missing.remove(worker.name)
            self._changed.notify_all()
            if not self._missing:
                return
            with worker.waiting("peer", object="warm-up", on=self._missing[0]):
                while self._missing:
                    self._fate.check()
                    worker.waits_on(self._missing[0])
                    self._changed.wait(RECHECK_S)
