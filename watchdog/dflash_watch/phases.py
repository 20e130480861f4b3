"""Finite phases that explain silence: told by events, or seen in stacks and compiler children.

A phase needs positive evidence. Threads that stand in every dump (a parked compile pool) are none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from dflash_watch.frame import StackSample
from dflash_watch.readers.waits import is_helper, wait_reason
from dflash_watch.window import Window

BUDGETS_S = {
    "loading": 1800.0, "tuning": 1200.0, "compiling": 1200.0, "warm-up": 1200.0,
    "evaluating": 1800.0, "checkpointing": 900.0, "stopping": 120.0,
}  # fmt: skip
START_BUDGET_S = 1800.0
PHASES_OF_WAITS = {
    "tune": "tuning", "compile": "compiling", "save": "checkpointing", "load": "loading",
    "import": "loading",
}  # fmt: skip
SAVES = re.compile(r"^_?(?:write|save)_(?:checkpoint|model|state|weights)\w*$|^checkpoint_now$")
EVALUATES = re.compile(r"^_?(?:run_)?(?:evaluat|validat(?:e|ion)(?:_|$)|eval_loop)\w*$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """What the run is in, how that is known, and how long it may take."""

    name: str
    since_t: float
    budget_s: float
    source: str
    """`events`, `log`, `stacks`, `process` (compilers, large writes or reads)."""
    detail: str | None = None
    budget_why: str | None = None
    """How the budget was arrived at; None: the run itself said it."""


def build_phase(
    name: str, since_t: float, source: str, budget_s: float | None = None, detail: str | None = None
) -> Phase:
    """A phase with the budget it was told, else with the usual one."""
    usual = BUDGETS_S.get(name, START_BUDGET_S)
    why = None if budget_s else f"budget of {name} while none was seen"
    return Phase(
        name=name, since_t=since_t, budget_s=budget_s or usual, source=source, detail=detail,
        budget_why=why,
    )  # fmt: skip


def told_phase(window: Window) -> Phase | None:
    """Innermost finite phase that has begun and not ended, by events and beats."""
    for phase in reversed(window.told.phases):
        if phase.name in BUDGETS_S:
            return build_phase(phase.name, phase.since_t, "events", phase.budget_s, phase.detail)
    if window.told.tuning:
        kernel, since_t = next(iter(window.told.tuning.items()))
        return build_phase("tuning", since_t, "events", detail=kernel)
    return None


def phase_of_stacks(sample: StackSample) -> str | None:
    """Finite phase that a stack sample shows; service threads that are in every dump left out."""
    found = set()
    for thread in sample.threads:
        if is_helper(thread):
            continue
        names = [frame.name.rpartition(".")[2] for frame in thread.frames]
        if any(SAVES.match(name) for name in names):
            found.add("checkpointing")
        if any(EVALUATES.match(name) for name in names):
            found.add("evaluating")
        is_import = "_find_and_load" in names
        found.add("loading" if is_import else PHASES_OF_WAITS.get(wait_reason(thread), ""))
    order = ("tuning", "compiling", "checkpointing", "evaluating", "loading")
    return next((name for name in order if name in found), None)
