"""A fleet as lines: one row a run, the worst first; and as JSON, one object a line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from dflash_watch.errors import EXIT_CRITICAL, EXIT_OK, EXIT_UNKNOWN, EXIT_WARNING
from dflash_watch.model import Record, Severity, Snapshot, Verdict
from dflash_watch.readers.lines import escaped, printable
from dflash_watch.render.check import exit_code
from dflash_watch.render.jsonl import SCHEMA, snapshot_object
from dflash_watch.units import count, duration, fine

RANK = {EXIT_CRITICAL: 0, EXIT_UNKNOWN: 1, EXIT_WARNING: 2, EXIT_OK: 3}
"""What cannot be seen stands behind what is known to be broken and before what is fine."""
WHAT_LIMIT = 160
HEADS = ("verdict", "run", "where", "for", "step", "speed", "what")
_COLOUR = {EXIT_CRITICAL: "31", EXIT_UNKNOWN: "35", EXIT_WARNING: "33", EXIT_OK: "32"}


class Row(Record, frozen=True, kw_only=True):
    """What is known about one run now."""

    name: str
    where: str
    snapshot: Snapshot | None = None
    """None before the first look."""
    trouble: str | None = None
    """Why it is not watched at this moment; the snapshot is then of before."""
    is_over: bool = False
    """Nothing more will come."""


def row_code(row: Row) -> int:
    """As `check` would end: 0 fine, 1 warning, 2 critical, 3 cannot tell."""
    if row.trouble is not None or row.snapshot is None:
        return EXIT_UNKNOWN
    return exit_code(row.snapshot)


def worst_code(rows: Sequence[Row]) -> int:
    """Of all runs: 2 before 3 before 1 before 0."""
    return min((row_code(row) for row in rows), key=lambda code: RANK[code], default=EXIT_UNKNOWN)


def worst_first(rows: Sequence[Row]) -> list[Row]:
    """Sorted by what needs a person, what has lasted longest first; what is fine by name."""

    def key(row: Row) -> tuple[int, float, str]:
        code, shot = row_code(row), row.snapshot
        since_t = shot.since_t if shot is not None and code != EXIT_OK else 0.0
        return RANK[code], since_t, row.name

    return sorted(rows, key=key)


def render_table(rows: Sequence[Row], *, is_coloured: bool = False) -> str:
    """All runs, the worst first, in columns."""
    cells = [row_cells(row) for row in worst_first(rows)]
    widths = [
        max(len(line[column]) for line in [HEADS, *cells]) for column in range(len(HEADS) - 1)
    ]
    lines = [_line(HEADS, widths)]
    for row, line in zip(worst_first(rows), cells, strict=True):
        text = _line(line, widths)
        if is_coloured:
            word = line[0].ljust(widths[0])
            text = f"\x1b[{_COLOUR[row_code(row)]};1m{word}\x1b[0m" + text[len(word) :]
        lines.append(text)
    return "\n".join(lines)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=False)]
    return "  ".join([*padded, cells[-1]]).rstrip()


def row_cells(row: Row) -> tuple[str, ...]:
    """The columns of one run."""
    shot = row.snapshot
    if shot is None:
        what = row.trouble or "not seen yet"
        return ("BLIND", printable(row.name), printable(row.where), "", "", "", printable(what))
    verdict = Verdict.BLIND if row.trouble is not None else shot.verdict
    since_s = max(shot.t - shot.since_t, 0.0)
    board = shot.board
    step = "" if board.step is None else str(board.step)
    if board.step is not None and board.total_steps:
        step += f"/{board.total_steps}"
    return (
        verdict.value.upper(),
        printable(row.name),
        printable(row.where),
        duration(since_s) if row.trouble is None else "",
        step,
        _speed(shot),
        _what(row, shot),
    )


def _speed(shot: Snapshot) -> str:
    board = shot.board
    if shot.verdict not in (Verdict.RUNNING, Verdict.SLOW):
        return ""
    if board.tokens_per_s is not None:
        return f"{count(board.tokens_per_s)} tok/s"
    return "" if board.steps_per_s is None else f"{fine(board.steps_per_s)} steps/s"


def _what(row: Row, shot: Snapshot) -> str:
    if row.trouble is not None:
        return printable(row.trouble)
    name = f"{shot.failure}: " if shot.names_failure else ""
    subject = "" if shot.subject == "run" or shot.subject in shot.summary else f"{shot.subject}: "
    text = " ".join(printable(f"{name}{subject}{shot.summary}").split())
    return text if len(text) <= WHAT_LIMIT else f"{text[: WHAT_LIMIT - 3]}..."


def row_object(row: Row) -> dict[str, Any]:
    """The object of `--json`, with `name` (of the fleet file) and `where` before it."""
    told: dict[str, Any] = {"name": row.name, "where": row.where, "trouble": row.trouble}
    if row.snapshot is not None:
        told |= snapshot_object(row.snapshot)
    else:
        told |= {"schema": SCHEMA, "run": row.name, "failure": "watch-lost"}
        told |= {"severity": Severity.WARNING.value, "summary": row.trouble or "not seen yet"}
    if row.trouble is not None or row.snapshot is None:
        told["verdict"] = Verdict.BLIND.value
    return told


def render_row_json(row: Row) -> str:
    """One line of JSON."""
    return escaped(msgspec.json.encode(row_object(row)).decode())


def essence(row: Row) -> tuple[object, ...]:
    """What, when it changes, is worth a line."""
    shot = row.snapshot
    if shot is None or row.trouble is not None:
        return (Verdict.BLIND, "watch-lost", "link", row.trouble)
    incident = shot.incident
    kept = None if incident is None else (incident.key, incident.stage, incident.path)
    return (row.trouble, shot.verdict, shot.failure, shot.subject, shot.severity, kept)
