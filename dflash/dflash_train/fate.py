"""How the pipeline ends: finished, stopped on request, or failed. "Failed" is not "closed".

One object shared by all workers; whoever waits, waits on a condition known here, so that the end
reaches everybody at once.
"""

from __future__ import annotations

import threading

from dflash_train.errors import PipelineStoppedError, WorkerFailedError


class Fate:
    """Running until somebody fails or the pipeline is ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._conditions: list[threading.Condition] = []
        self._failures: list[tuple[str, BaseException]] = []
        self._ended = False

    def condition(self) -> threading.Condition:
        """A condition that is notified when the pipeline ends."""
        condition = threading.Condition()
        with self._lock:
            self._conditions.append(condition)
        return condition

    def fail(self, worker: str, error: BaseException) -> None:
        """Record why `worker` ended and stop the others; the first one recorded is the cause."""
        with self._lock:
            self._failures.append((worker, error))
        self.end()

    def end(self) -> None:
        """Let everybody who waits go: nothing more is wanted."""
        with self._lock:
            self._ended = True
            conditions = tuple(self._conditions)
        for condition in conditions:
            with condition:
                condition.notify_all()

    @property
    def is_over(self) -> bool:
        """True once the pipeline ends, for whatever reason."""
        return self._ended

    def check(self) -> None:
        """Raise in a worker when the pipeline ends under it.

        Raises:
            PipelineStoppedError: always the consequence, never the cause.
        """
        if self._ended:
            raise PipelineStoppedError("the pipeline has ended")

    def raise_failure(self) -> None:
        """Raise the failure in whoever supervises; nothing when there was none.

        Raises:
            WorkerFailedError: names the first worker and its cause, then the others.
        """
        with self._lock:
            failures = tuple(self._failures)
        if not failures:
            return
        (worker, error), *rest = failures
        others = tuple(f"{name}: {describe(other)}" for name, other in rest)
        raise WorkerFailedError(worker, describe(error), others) from error


def describe(error: BaseException) -> str:
    """`Type: message` on one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
