"""Faults on purpose, to see that they are noticed; only `drill.fault=...` sets them off.

raise        the worker raises in the middle of the run
lock-cycle   two drafters hold their own weights and want each other's
stop-taking  a drafter (or target) takes nothing any more, and waits for nothing
stop-giving  a target (or the loader) gives nothing any more, and waits for nothing
gil-busy     a C call computes and keeps the interpreter lock
gil-asleep   a C call sleeps and keeps the interpreter lock

Targets share the batches, so the one that was told to fail may never hold batch
`drill.at_step`: its fault comes at the first one from there on, once. `drill.at_step=-1` is the
warm-up, before all batches.
"""

from __future__ import annotations

import ctypes
import logging
import re
import threading
import time
from collections.abc import Mapping

from dflash_events import Worker

from dflash_train.config import DrillConfig
from dflash_train.fate import Fate
from dflash_train.locks import NamedLock

logger = logging.getLogger(__name__)


class DrillError(RuntimeError):
    """The exception of the `raise` drill."""


class Drill:
    """The fault that was asked for, or none.

    Args:
        config: which, in whom, when.
        locks: worker to the lock on its weights.
        fate: a drill ends with the pipeline.
    """

    def __init__(self, config: DrillConfig, locks: Mapping[str, NamedLock], fate: Fate) -> None:
        self._config, self._locks, self._fate = config, locks, fate
        self._rendezvous = threading.Barrier(2)
        self._begun: set[str] = set()
        if config.fault:
            logger.warning(
                "DRILL: %s in %s at step %d, on purpose",
                config.fault,
                ", ".join(config.worker),
                config.at_step,
            )

    def before_work(self, worker: Worker, step: int) -> None:
        """Called by every worker before each item; -1 while it warms up."""
        if self._is_due(worker, step, "raise"):
            raise DrillError(
                f"drill: {worker.name} was told to fail at step {self._config.at_step}"
            )
        if self._is_due(worker, step, "gil-busy"):
            _compute_without_letting_go()
        if self._is_due(worker, step, "gil-asleep"):
            _sleep_without_letting_go(self._config.seconds)

    def before_take(self, worker: Worker, step: int) -> None:
        """Called by targets and drafters before they take from a queue."""
        if self._is_due(worker, step, "stop-taking"):
            self._do_nothing()

    def before_give(self, worker: Worker, step: int) -> None:
        """Called by the loader and targets before they put into a queue."""
        if self._is_due(worker, step, "stop-giving"):
            self._do_nothing()

    def with_own_weights(self, worker: Worker, step: int) -> None:
        """Called by drafters while they hold the lock on their weights."""
        pair = self._pair()
        if worker.name in pair and self._is_at(step, "lock-cycle"):
            other = pair[1 - pair.index(worker.name)]
            self._rendezvous.wait(self._config.seconds)
            self._take_weights_of(other, worker)

    def _take_weights_of(self, other: str, worker: Worker) -> None:
        with self._locks[other].held(worker):
            logger.warning("DRILL: no cycle came about between %s and %s", worker.name, other)

    def _pair(self) -> tuple[str, str]:
        names = sorted(self._locks)
        first = next((name for name in self._config.worker if name in names), names[0])
        rest = [n for n in self._config.worker if n in names and n != first]
        second = next(iter(rest), names[names.index(first) - 1])
        return first, second

    def _is_at(self, step: int, fault: str) -> bool:
        return self._config.fault == fault and step == self._config.at_step

    def _is_due(self, worker: Worker, step: int, fault: str) -> bool:
        if self._config.fault != fault or worker.name not in self._config.worker:
            return False
        if step < self._config.at_step or worker.name in self._begun:
            return False
        self._begun.add(worker.name)
        return True

    def _do_nothing(self) -> None:
        until_s = time.monotonic() + self._config.seconds
        while time.monotonic() < until_s and not self._fate.is_over:
            time.sleep(min(1.0, self._config.seconds))


def _compute_without_letting_go() -> None:
    """A regular expression that backtracks for hours inside one C call."""
    re.match(r"(a+)+$", "a" * 48 + "b")


def _sleep_without_letting_go(seconds: float) -> None:
    """PyDLL calls keep the interpreter lock, unlike CDLL ones."""
    ctypes.PyDLL(None).sleep(max(1, round(seconds)))
