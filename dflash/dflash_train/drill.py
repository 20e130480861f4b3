"""Faults on purpose, to see that they are noticed; only `drill.fault=...` sets them off.

raise            the worker raises in the middle of the run
lock-cycle       two drafters hold their own weights and want each other's
stop-taking      a drafter (or target) takes nothing any more, and waits for nothing
stop-giving      a target (or the loader) gives nothing any more, and waits for nothing
gil-busy         a C call computes and keeps the interpreter lock
gil-asleep       a C call sleeps and keeps the interpreter lock
gil-hog          a thread of its own keeps the interpreter lock most of the time, from then on
data-starvation  the loader takes long over each batch, from then on
nan-loss         a target gives features that are no numbers, from then on
memory-leak      the worker keeps 16 MB more each second, up to 2 GB
slow-disk        a drafter's checkpoint comes onto the disk in drops

Targets share the batches, so the one that was told to fail may never hold batch
`drill.at_step`: its fault comes at the first one from there on. `drill.at_step=-1` is the warm-up,
before all batches. With `drill.trigger` the fault waits for that file as well.
"""

from __future__ import annotations

import ctypes
import logging
import os
import re
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import torch
from dflash_events import Worker

from dflash_train.config import DrillConfig
from dflash_train.fate import Fate
from dflash_train.locks import NamedLock

logger = logging.getLogger(__name__)

STARVED_S = 0.6
LEAK_BYTES, LEAK_PER_S, LEAK_MOST = 1 << 20, 16 << 20, 2 << 30
DROP_BYTES, DROP_EVERY_S, SLOW_SAVE_S = 4096, 0.25, 45.0


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
        self._trigger = Path(config.trigger) if config.trigger else None
        self._rendezvous = threading.Barrier(2)
        self._begun: set[str] = set()
        self._cycle_step: int | None = None
        self._leaked: list[bytes] = []
        self._leaks_since_s = 0.0
        self._guard = threading.Lock()
        if config.fault:
            workers, step = ", ".join(config.worker), config.at_step
            logger.warning("DRILL: %s in %s at step %d, on purpose", config.fault, workers, step)

    def before_work(self, worker: Worker, step: int) -> None:
        """Called by every worker before each item; -1 while it warms up."""
        if self._begins(worker, step, "raise"):
            raise DrillError(
                f"drill: {worker.name} was told to fail at step {self._config.at_step}"
            )
        if self._begins(worker, step, "gil-busy"):
            _compute_without_letting_go()
        if self._begins(worker, step, "gil-asleep"):
            _sleep_without_letting_go(self._config.seconds)
        if self._begins(worker, step, "gil-hog"):
            threading.Thread(target=self._hog, name="drill-hog", daemon=True).start()
        if self._lasts(worker, step, "memory-leak"):
            self._leak()

    def before_take(self, worker: Worker, step: int) -> None:
        """Called by targets and drafters before they take from a queue."""
        if self._begins(worker, step, "stop-taking"):
            self._do_nothing()

    def before_give(self, worker: Worker, step: int) -> None:
        """Called by the loader and targets before they put into a queue."""
        if self._begins(worker, step, "stop-giving"):
            self._do_nothing()
        if self._lasts(worker, step, "data-starvation"):
            time.sleep(STARVED_S)

    def spoiled(self, worker: Worker, step: int, features: torch.Tensor) -> torch.Tensor:
        """The features of a target, [rows, length, width], as it is to give them."""
        return features * torch.nan if self._lasts(worker, step, "nan-loss") else features

    def with_own_weights(self, worker: Worker, step: int) -> None:
        """Called by drafters while they hold the lock on their weights."""
        pair = self._pair()
        if self._config.fault != "lock-cycle" or worker.name not in pair:
            return
        if step == self._agreed_step(step):
            other = pair[1 - pair.index(worker.name)]
            self._rendezvous.wait(self._config.seconds)
            self._take_weights_of(other, worker)

    def before_save(self, worker: Worker, step: int, folder: Path) -> None:
        """Called by the drafter that saves, inside its phase."""
        if not self._begins(worker, step, "slow-disk"):
            return
        folder.mkdir(parents=True, exist_ok=True)
        drops = folder / ".drill-slow-disk"
        until_s = time.monotonic() + min(self._config.seconds, SLOW_SAVE_S)
        with drops.open("wb") as out:
            while time.monotonic() < until_s and not self._fate.is_over:
                out.write(b"\0" * DROP_BYTES)
                out.flush()
                os.fsync(out.fileno())
                time.sleep(DROP_EVERY_S)
        drops.unlink()

    def finish(self) -> None:
        """Called when the run is over: a fault that never came about is no proof of anything."""
        if self._config.fault and not self._begun:
            logger.warning("DRILL: %s did not come about before the end", self._config.fault)

    def _take_weights_of(self, other: str, worker: Worker) -> None:
        with self._locks[other].held(worker):
            logger.warning("DRILL: no cycle came about between %s and %s", worker.name, other)

    def _pair(self) -> tuple[str, str]:
        names = sorted(self._locks)
        first = next((name for name in self._config.worker if name in names), names[0])
        rest = [n for n in self._config.worker if n in names and n != first]
        second = next(iter(rest), names[names.index(first) - 1])
        return first, second

    def _agreed_step(self, step: int) -> int | None:
        """The step of the cycle: fixed at one step, holds from the next, which both then reach."""
        with self._guard:
            if self._cycle_step is None and self._may_begin(step + 1):
                self._cycle_step = step + 1
                self._begun.add("cycle")
            return self._cycle_step

    def _may_begin(self, step: int) -> bool:
        if step < self._config.at_step:
            return False
        return self._trigger is None or self._trigger.exists()

    def _lasts(self, worker: Worker, step: int, fault: str) -> bool:
        if self._config.fault != fault or worker.name not in self._config.worker:
            return False
        if worker.name not in self._begun and self._may_begin(step):
            self._begun.add(worker.name)
            self._leaks_since_s = time.monotonic()
        return worker.name in self._begun

    def _begins(self, worker: Worker, step: int, fault: str) -> bool:
        """True once."""
        if self._config.fault != fault or worker.name in self._begun:
            return False
        return self._lasts(worker, step, fault)

    def _do_nothing(self) -> None:
        until_s = time.monotonic() + self._config.seconds
        while time.monotonic() < until_s and not self._fate.is_over:
            time.sleep(min(1.0, self._config.seconds))

    def _leak(self) -> None:
        since_s = time.monotonic() - self._leaks_since_s
        due_bytes = min(int(since_s * LEAK_PER_S), LEAK_MOST)
        while len(self._leaked) * LEAK_BYTES < due_bytes:
            self._leaked.append(b"\1" * LEAK_BYTES)

    def _hog(self) -> None:
        until_s = time.monotonic() + self._config.seconds
        while time.monotonic() < until_s and not self._fate.is_over:
            _backtrack(20)


def _compute_without_letting_go() -> None:
    _backtrack(48)


def _backtrack(letters: int) -> None:
    """A regular expression inside one C call: 20 letters take some 80 ms, 48 hours."""
    re.match(r"(a+)+$", "a" * letters + "b")


def _sleep_without_letting_go(seconds: float) -> None:
    """PyDLL calls keep the interpreter lock, unlike CDLL ones."""
    ctypes.PyDLL(None).sleep(max(1, round(seconds)))
