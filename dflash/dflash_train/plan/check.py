"""One check as a record: what was observed, what is expected, what to do; imports nothing heavy."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

CHECKS = (
    "devices",
    "disk",
    "tokenizer",
    "template",
    "mask-token",
    "positions",
    "rope",
    "documents",
    "kernels",
    "causal",
    "feature-index",
    "features",
    "padding",
    "embedding",
    "head",
    "agreement",
    "memory",
    "time",
    "leak",
    "cached-inference",
)
"""All names, in the order in which they are looked at."""


class State(StrEnum):
    """How a check came out."""

    OK = "ok"
    WARNING = "warning"
    """Training would not be wrong, but is probably not what was wanted."""
    FAILED = "failed"
    UNKNOWN = "unknown"
    """Could not be looked at; never counted as passed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at."""

    name: str
    state: State
    observed: str
    expected: str
    advice: str = ""
    """The next thing to do; empty where there is nothing to do."""
    overridden: bool = False
    """True: it failed, and the run was told to go on."""

    @property
    def refuses(self) -> bool:
        """True when no training may start."""
        return self.state is State.FAILED and not self.overridden

    def as_mapping(self) -> dict[str, object]:
        """Plain values, as run.json and `--json` give them."""
        return dataclasses.asdict(self) | {"state": str(self.state)}

    def line(self) -> str:
        """`name: observed, expected ...; advice`."""
        text = f"{self.name}: {self.observed}, expected {self.expected}"
        return f"{text}; {self.advice}" if self.advice else text


def passed(name: str, observed: str, expected: str) -> Check:
    """A check that came out well."""
    return Check(name=name, state=State.OK, observed=observed, expected=expected)


def judged(
    name: str, *, ok: bool, observed: str, expected: str, advice: str, weak: bool = False
) -> Check:
    """Passed, or failed (`weak`: a warning only) with its advice."""
    if ok:
        return passed(name, observed, expected)
    state = State.WARNING if weak else State.FAILED
    return Check(name=name, state=state, observed=observed, expected=expected, advice=advice)


def unknown(name: str, why: str, expected: str, advice: str = "") -> Check:
    """A check that could not be made."""
    return Check(name=name, state=State.UNKNOWN, observed=why, expected=expected, advice=advice)


def override(checks: Sequence[Check], names: Sequence[str]) -> tuple[Check, ...]:
    """The checks with those failures marked that the run was told to bear."""
    return tuple(
        dataclasses.replace(check, overridden=True)
        if check.name in names and check.state is State.FAILED
        else check
        for check in checks
    )


def table(checks: Sequence[Check], width: int = 100) -> str:
    """Columns for a terminal: check, state, observed; below what is not well, what to do."""
    names = max(len(check.name) for check in checks)
    lines: list[str] = []
    for check in checks:
        state = "overridden" if check.overridden else str(check.state)
        head = f"{check.name:<{names}}  {state:<10}  "
        lines += _wrapped(head, check.observed, width)
        if check.state is not State.OK:
            lines += _wrapped(" " * len(head), f"expected: {check.expected}", width)
            if check.advice:
                lines += _wrapped(" " * len(head), f"do: {check.advice}", width)
    return "\n".join(lines)


def _wrapped(head: str, text: str, width: int) -> list[str]:
    room = max(30, width - len(head))
    parts = textwrap.wrap(text, room, break_on_hyphens=False) or [""]
    return [head + parts[0], *(" " * len(head) + part for part in parts[1:])]
