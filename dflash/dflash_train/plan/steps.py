"""Which step a long look has reached, on standard error."""

from __future__ import annotations

import sys
from typing import Any


class Steps:
    """A bar on a terminal, a line a step elsewhere.

    Args:
        name: of the whole; begins each line.
        total: number of steps.
    """

    def __init__(self, name: str, total: int) -> None:
        self._name, self._total, self._count = name, total, 0
        self._bar: Any = None

    def begin(self, step: str) -> None:
        """`step` begins; what was begun before it has ended."""
        self._count += 1
        if not sys.stderr.isatty():
            sys.stderr.write(f"{self._name}: {step} ({self._count} of {self._total})\n")
            return
        if self._bar is None:
            from tqdm import tqdm  # noqa: PLC0415  (a terminal only)

            self._bar = tqdm(total=self._total, desc=self._name, unit="check", file=sys.stderr)
        self._bar.set_postfix_str(step)
        self._bar.update(self._count - 1 - self._bar.n)

    def __enter__(self) -> Steps:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.update(self._total - self._bar.n)
            self._bar.close()
