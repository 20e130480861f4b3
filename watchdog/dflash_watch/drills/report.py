"""Results of drills as lines, as a table and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dflash_watch.drills.catalog import DRILLS, Drill
from dflash_watch.drills.trial import Result
from dflash_watch.errors import EXIT_CRITICAL, EXIT_OK, EXIT_UNKNOWN

MARKS = {"caught": "ok", "missed": "MISSED", "skipped": "skipped"}


def line(result: Result) -> str:
    """One result, for a person who waits."""
    if result.state == "skipped":
        return f"skipped: {result.why}"
    said = f"{result.verdict or 'nothing'} {result.failure or ''} {result.subject or ''}".strip()
    if result.state == "missed":
        return f"MISSED: {result.why}; last said: {said}; expected {expected(result.drill)}"
    return f"ok: {said} after {result.seconds:.1f} s"


def expected(drill: Drill) -> str:
    """The right answer."""
    subject = drill.subject.replace("{log}", "its log")
    return f"{' or '.join(sorted(drill.verdicts))} {drill.failure} {subject}"


def table(results: Sequence[Result]) -> str:
    """All results, aligned; it is Markdown too."""
    rows = [("drill", "result", "verdict", "failure", "subject", "seconds", "stacks")]
    for one in results:
        seconds = "" if one.seconds is None else f"{one.seconds:.1f}"
        stacks = str(one.samples) if one.drill.samples and one.state == "caught" else ""
        subject = one.drill.subject if one.state == "caught" else one.subject or ""
        cells = (one.verdict or "", one.failure or "", subject, seconds, stacks)
        rows.append((one.drill.name, MARKS[one.state], *cells))
    return _aligned(rows)


def catalog() -> str:
    """What there is."""
    head = ("fault", "what is broken", "right answer", "needs")
    rows = ((d.name, d.breaks, expected(d), ", ".join(sorted(d.needs))) for d in DRILLS)
    return _aligned([head, *rows])


def summary(results: Sequence[Result]) -> str:
    """The last line."""
    counted = {state: [one for one in results if one.state == state] for state in MARKS}
    text = f"{len(counted['caught'])} of {len(results)} caught"
    if counted["missed"]:
        text += f", missed: {', '.join(one.drill.name for one in counted['missed'])}"
    for one in counted["skipped"]:
        text += f"\nskipped {one.drill.name}: {one.why}"
    return text


def exit_code(results: Sequence[Result]) -> int:
    """0 all caught, 2 one was missed, 3 nothing could be tried."""
    states = {one.state for one in results}
    if "missed" in states:
        return EXIT_CRITICAL
    return EXIT_OK if "caught" in states else EXIT_UNKNOWN


def as_object(result: Result) -> dict[str, Any]:
    """For `--json`; keys are only added to."""
    drill = result.drill
    return {
        "schema": 1, "drill": drill.name, "state": result.state, "verdict": result.verdict,
        "failure": result.failure, "subject": result.subject, "seconds": result.seconds,
        "stacks": result.samples, "why": result.why,
        "expected": {
            "verdicts": sorted(drill.verdicts), "failure": drill.failure, "subject": drill.subject
        },
    }  # fmt: skip


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [_row(row, widths) for row in rows]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([lines[0], rule, *lines[1:]])


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
    return "| " + " | ".join(padded) + " |"
