"""How far preparing is, on standard error; loads nothing heavy."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

SAY_EVERY_S = 10.0


def default_workers() -> int:
    """As many processes as this one may use cores; 8 at most."""
    return min(8, len(os.sched_getaffinity(0)))


class Progress:
    """A bar on a terminal, else a line now and then; on standard error."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._said = time.monotonic()
        self._first: tuple[float, int] | None = None

    def lines(self, done: int, total: int) -> None:
        """`done` of `total` lines are prepared."""
        if sys.stderr.isatty():
            self._draw(done, total)
            return
        now = time.monotonic()
        start, before = self._first = self._first or (now, done)
        if now - self._said >= SAY_EVERY_S or done == total:
            self._said = now
            rate = f", {(done - before) / (now - start):,.0f} lines/s" if now > start else ""
            sys.stderr.write(f"prepare: {done:,} of {total:,} lines{rate}\n")

    def problem(self, file: str, line: int, reason: str) -> None:
        """One line, above the bar where there is one."""
        text = f"{file} line {line}: {reason}"
        if self._bar is None:
            sys.stderr.write(f"{text}\n")
        else:
            self._bar.write(text, file=sys.stderr)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def _draw(self, done: int, total: int) -> None:
        from tqdm import tqdm  # noqa: PLC0415  (a terminal only)

        if self._bar is None:
            self._bar = tqdm(total=total, unit="line", desc="prepare", file=sys.stderr)
        self._bar.update(done - self._bar.n)
