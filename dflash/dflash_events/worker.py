"""What one worker of the run says about itself: beats, waits, phases, its end."""

from __future__ import annotations

import threading
import time
import traceback
from typing import Callable

from dflash_events import layout as at
from dflash_events.beats import BeatPage
from dflash_events.layout import (
    S_BEGIN,
    S_END,
    S_ITEMS,
    S_PROGRESS_NS,
    S_STEP,
    S_WAIT,
    S_WAIT_NS,
    S_WAIT_OBJECT,
    S_WAITS_FOR,
)
from dflash_events.schema import STATES, WAITS

_NS = time.monotonic_ns
_WAIT_NUMBERS = {name: number for number, name in enumerate(WAITS)}
_TRACEBACK_CHARS = 16 * 1024

Emit = Callable[..., None]


class Worker:
    """Handle of one worker, used by that worker's own thread. Made by `RunWriter.worker`.

    No method raises for anything outside the process, none waits, none reads a file.
    """

    __slots__ = (
        "_base",
        "_items",
        "_phase",
        "_seq",
        "_words",
        "device",
        "emit",
        "name",
        "page",
        "role",
        "wait_now",
        "wait_ns",
    )

    def __init__(self, page: BeatPage, base: int | None, emit: Emit, name: str, role: str) -> None:
        self.name, self.role = name, role
        self.page, self.emit = page, emit
        self.wait_ns = [0] * len(WAITS)
        """Time waited since the start, by reason (order of schema.WAITS), ns."""
        self._seq = self._items = 0
        self.wait_now: tuple[int, int, int, int] = (0, at.NOTHING, 0, 0)
        """Reason, since when (ns), number of the object, number of the worker waited for."""
        self._phase = 0
        if base is None:
            self.detach()
        else:
            self._words, self._base = page.words, base

    def detach(self) -> None:
        """Store into nowhere from now on: no slot was left, or this is a forked child."""
        self._words, self._base = memoryview(bytearray(at.SLOT_WORDS * 8)).cast("q"), 0

    def beat(self, step: int | None = None, items: int | None = None) -> None:
        """Work was done just now.

        Args:
            step: optimizer step reached; None leaves it.
            items: items done since the start; None counts one more.
        """
        words, base = self._words, self._base
        self._seq = words[base + S_BEGIN] = seq = self._seq + 1
        self._items = words[base + S_ITEMS] = self._items + 1 if items is None else items
        if step is not None:
            words[base + S_STEP] = step
        words[base + S_PROGRESS_NS] = _NS()
        words[base + S_END] = seq

    def waiting(self, reason: str, object: str | None = None, on: str | None = None) -> Waiting:  # noqa: A002 - the word callers read: waiting("lock", object="mask-cache")
        """A context in which this worker waits.

        Args:
            reason: one of schema.WAITS; anything else counts as `peer`.
            object: name of the queue, lock or file.
            on: name of the worker waited for, where known.
        """
        return Waiting(
            self,
            _WAIT_NUMBERS.get(reason, _WAIT_NUMBERS["peer"]),
            self.page.text(object),
            self.page.text(on),
        )

    def waits_on(self, on: str | None) -> None:
        """Within `waiting`: who is waited for turned out, or changed (a lock's new owner)."""
        number, since, thing, _ = self.wait_now
        self.set_wait((number, since, thing, self.page.text(on)))

    def phase(
        self, name: str, *, budget_s: float | None = None, detail: str | None = None
    ) -> WorkerPhase:
        """A context in which this worker is in another phase than the run.

        Args:
            name: one of schema.PHASES.
            budget_s: how long it is expected to take at most, None if nobody knows.
            detail: for people: which shape, which file.
        """
        return WorkerPhase(self, name, budget_s, detail)

    def queue(self, depth: int, capacity: int) -> None:
        """Fill of the queue this worker reads or writes."""
        self.store({at.S_DEPTH: depth, at.S_CAPACITY: capacity})

    def failed(self, exception: BaseException) -> None:
        """This worker ends with an exception: announced at once, with its traceback."""
        self.store({at.S_STATE: STATES.index("failed")})
        lines = traceback.format_exception(type(exception), exception, exception.__traceback__)
        self.emit(
            "worker-failed",
            worker=self.name,
            role=self.role,
            exception=type(exception).__name__,
            message=_safe_text(exception),
            traceback="".join(lines)[-_TRACEBACK_CHARS:],
        )

    def ended(self) -> None:
        """This worker has nothing more to do; that it is silent from now on is right."""
        self.store({at.S_STATE: STATES.index("ended")})

    @property
    def state(self) -> str:
        """One of schema.STATES; `unknown` when somebody scribbled over the page."""
        number = self._words[self._base + at.S_STATE]
        return STATES[number] if 0 <= number < len(STATES) else "unknown"

    @property
    def step(self) -> int | None:
        """The step of the newest beat that named one."""
        step = self._words[self._base + at.S_STEP]
        return None if step == at.NOTHING else step

    def waited_ns(self, now_ns: int) -> list[int]:
        """Time waited by reason, the wait that goes on now included."""
        totals = list(self.wait_ns)
        number, since, _, _ = self.wait_now
        if number:
            totals[number] += max(now_ns - since, 0)
        return totals

    def begin_again(self) -> None:
        """A new thread took this worker's name: running again, with the new thread's id."""
        self._words[self._base + at.S_TID] = threading.get_native_id()
        self.set_wait((0, at.NOTHING, 0, 0))
        self.store({at.S_STATE: STATES.index("running")})

    def set_wait(self, wait: tuple[int, int, int, int]) -> None:
        """Store a wait as `wait_now` describes it; for Waiting."""
        words, base = self._words, self._base
        self._seq = words[base + S_BEGIN] = seq = self._seq + 1
        self.wait_now = wait
        words[base + S_WAIT], words[base + S_WAIT_NS] = wait[0], wait[1]
        words[base + S_WAIT_OBJECT], words[base + S_WAITS_FOR] = wait[2], wait[3]
        words[base + S_END] = seq

    def set_phase(self, number: int) -> int:
        """Store a phase by its text's number, return the one before; for WorkerPhase."""
        before, self._phase = self._phase, number
        self.store({at.S_PHASE: number})
        return before

    def store(self, fields: dict[int, int]) -> None:
        """Store some fields (of layout.S_*) as one change."""
        words, base = self._words, self._base
        self._seq = words[base + S_BEGIN] = seq = self._seq + 1
        for field, value in fields.items():
            words[base + field] = value
        words[base + S_END] = seq


class Waiting:
    """The wait a worker is in; waits nest, the outer one shows again at the end of the inner."""

    __slots__ = ("_before", "_number", "_object", "_on", "_since", "_worker")

    def __init__(self, worker: Worker, number: int, thing: int, on: int) -> None:
        self._worker, self._number, self._object, self._on = worker, number, thing, on
        self._since = 0

    def __enter__(self) -> None:
        worker = self._worker
        self._before = worker.wait_now
        self._since = _NS()
        worker.set_wait((self._number, self._since, self._object, self._on))

    def __exit__(self, *_: object) -> None:
        worker = self._worker
        if not self._before[0]:
            worker.wait_ns[self._number] += _NS() - self._since
        worker.set_wait(self._before)


class WorkerPhase:
    """A phase of one worker: its begin and its end are events, in between its slot says so."""

    __slots__ = ("_before", "_budget_s", "_detail", "_name", "_worker")

    def __init__(
        self, worker: Worker, name: str, budget_s: float | None, detail: str | None
    ) -> None:
        self._worker, self._name = worker, name
        self._budget_s, self._detail = budget_s, detail

    def __enter__(self) -> None:
        worker = self._worker
        self._before = worker.set_phase(worker.page.text(self._name))
        self._announce("begin")

    def __exit__(self, *_: object) -> None:
        self._worker.set_phase(self._before)
        self._announce("end")

    def _announce(self, edge: str) -> None:
        self._worker.emit(
            "phase",
            worker=self._worker.name,
            name=self._name,
            edge=edge,
            budget_s=self._budget_s,
            detail=self._detail,
        )


def _safe_text(exception: BaseException) -> str:
    """The exception's own words, bounded; a `str` that raises is survived by traceback."""
    lines = traceback.format_exception_only(type(exception), exception)
    return "".join(lines).strip().partition(": ")[2][:4096]
