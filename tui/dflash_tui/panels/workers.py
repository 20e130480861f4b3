"""Workers as their beat slots say: what each does, for whom it waits, when it last got on."""

from __future__ import annotations

from dflash_watch.model import Board, WorkerRow

from dflash_tui.cells import Ink, Row, Span, clean, fit
from dflash_tui.panels.gpurow import role_ink
from dflash_tui.phrases import count, duration, known

UPSTREAM = ("loader", "target")
"""Roles before the queue."""

_ORDER = {"loader": 0, "target": 1, "drafter": 2}


def ordered(board: Board) -> list[WorkerRow]:
    """In the direction of the data: loader, targets, drafters, others."""
    return sorted(board.workers, key=lambda worker: (_ORDER.get(worker.role, 3), worker.name))


def worker_rows(board: Board, elapsed_s: float, cells: int) -> list[Row]:
    """One row a worker."""
    return [_worker_row(worker, elapsed_s, cells) for worker in ordered(board)]


def _worker_row(worker: WorkerRow, elapsed_s: float, cells: int) -> Row:
    letter = (clean(worker.role)[:1] or " ").upper()
    wide = cells >= 96
    step = "" if worker.step is None else f"step {count(worker.step, short=not wide)}"
    items = "" if worker.items is None else f"{count(worker.items, short=not wide)} items"
    spans = [
        Span(fit(f"  {letter} {clean(worker.name)}", 16), role_ink(worker.role)),
        Span(fit(clean(worker.device or ""), 8 if wide else 0), Ink.DIM),
        Span(fit(clean(worker.phase or ""), 15 if wide else 12)),
        Span(fit(step, 15 if wide else 11)),
        Span(fit(items, 15 if wide else 0), Ink.DIM),
    ]
    return (*spans, *_activity(worker, elapsed_s))


def _activity(worker: WorkerRow, elapsed_s: float) -> Row:
    """What it does now and when it last got on."""
    if worker.state == "failed":
        return (Span("failed", Ink.CRITICAL),)
    if worker.state != "running":
        return (Span(clean(worker.state), Ink.DIM),)
    age = known(worker.progress_age_s)
    got_on = "" if age is None else f"  got on {duration(age + elapsed_s)} ago"
    if worker.wait in {None, "", "none"}:
        return (Span("working", Ink.LINE), Span(got_on, Ink.DIM))
    since = known(worker.wait_s)
    wait = f"waits: {clean(worker.wait or '')}"
    wait += f" of {clean(worker.waits_for)}" if worker.waits_for else ""
    wait += "" if since is None else f" {duration(since + elapsed_s)}"
    long = worker.role in _ORDER and since is not None and since + elapsed_s > 10
    ink = Ink.WARN if long else Ink.TEXT
    if worker.role == "main":
        ink = Ink.DIM  # it starts the others and waits for them: its part, whatever happens
    return (Span(wait, ink), Span(got_on, Ink.DIM))
