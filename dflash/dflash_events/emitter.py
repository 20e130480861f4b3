"""The events a run can announce, one method a kind."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Callable

from dflash_events.events import encode_event
from dflash_events.schema import PERIODIC_KINDS, SCHEMA

_THROUGHPUT = dict.fromkeys(
    (
        "tokens_per_s",
        "tokens_total",
        "loss",
        "lr",
        "grad_norm",
        "queue_depth",
        "queue_capacity",
        "memory",
        "padding_ratio",
        "acceptance_length",
    )
)

Put = Callable[[bytes, bool], None]
"""Takes a line and whether it is a periodic one; never waits."""


class Announcer:
    """Numbers, dates and encodes events. Base of `RunWriter`, and all of it that makes events."""

    total_steps: int | None = None

    def __init__(self, put: Put) -> None:
        self._put = put
        self._numbers = itertools.count(1)

    def event(self, kind: str, *, worker: str | None = None, **keys: object) -> None:
        """Any event. Numbers that are not finite become null and a `numeric` event of their own."""
        line, nonfinite = self.line(kind, worker, keys)
        self._put(line, kind in PERIODIC_KINDS)
        for what, value in nonfinite:
            if kind != "numeric":
                self.numeric(step=keys.get("step"), what=what, value=value, worker=worker)

    def line(
        self, kind: str, worker: str | None, keys: dict[str, object]
    ) -> tuple[bytes, list[tuple[str, str]]]:
        """The numbered and dated line of an event, and what in it was not finite."""
        head = {
            "v": SCHEMA,
            "seq": next(self._numbers),  # atomic, and safe in a signal handler
            "kind": kind,
            "t": time.time(),
            "m": time.monotonic_ns() / 1e9,
            "worker": worker,
        }
        return encode_event({**head, **keys, **head})

    def throughput(self, *, step: int, **keys: object) -> None:
        """Periodic figures; the keys are in docs/run-directory.md, those not given are null.

        `window_s` and `wait_shares` since the last call, and `total_steps`, are filled in here.
        """
        given = {**_THROUGHPUT, **self.window_figures(), "total_steps": self.total_steps, **keys}
        self.event("throughput", **{**given, "step": step})  # type: ignore[arg-type]  # no key of ours is `kind`

    def window_figures(self) -> dict[str, object]:
        """`window_s` and `wait_shares` since the last call."""
        return {}

    def autotune(
        self,
        kernel: str,
        *,
        edge: str,
        key: object = None,
        error: str | None = None,
        worker: str | None = None,
    ) -> None:
        """A kernel is being tuned: `edge` is `begin`, `end` or `failed`."""
        self.event("autotune", worker=worker, kernel=kernel, key=key, edge=edge, error=error)

    def checkpoint(
        self,
        *,
        step: int,
        path: str | Path,
        seconds: float | None = None,
        bytes: int | None = None,  # noqa: A002 - the event's own key
        error: str | None = None,
    ) -> None:
        """A checkpoint was written, or was not (`error`)."""
        self.event(
            "checkpoint", step=step, path=str(path), seconds=seconds, bytes=bytes, error=error
        )

    def quality(
        self,
        *,
        step: int,
        acceptance_length: float,
        estimate: float | None = None,
        **figures: object,
    ) -> None:
        """True acceptance, beside what training estimated; `figures` are further keys."""
        given = {**figures, "acceptance_length": acceptance_length, "estimate": estimate}
        self.event("quality", **{**given, "step": step})  # type: ignore[arg-type]  # no key of ours is `kind`

    def numeric(self, *, step: object, what: str, value: object, worker: str | None = None) -> None:
        """Something is not finite; `value` is kept as text."""
        self.event("numeric", worker=worker, step=step, what=what, value=str(value))
