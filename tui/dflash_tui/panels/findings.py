"""Findings, newest first: when, how bad, which failure, on what."""

from __future__ import annotations

from dflash_watch.model import Finding, Severity

from dflash_tui.cells import Ink, Row, Span, clean, fit_row
from dflash_tui.panels.frame import title
from dflash_tui.panels.throughput import severity_ink
from dflash_tui.phrases import duration, open_findings
from dflash_tui.state import Choices, Panel, scrolls
from dflash_tui.view import View

MARKS = {Severity.INFO: "i", Severity.WARNING: "!", Severity.CRITICAL: "X"}


def findings_title(view: View, choices: Choices) -> Row:
    """`Findings  2 open`."""
    number = open_findings(view.snapshot) if view.snapshot else 0
    rest = f"{number} open" if number else ""
    return title("Findings", rest, focused=choices.focus is Panel.FINDINGS, ink=Ink.WARN)


def findings(view: View, choices: Choices, cells: int, height: int) -> list[Row]:
    """The panel's rows, without its frame."""
    found = view.snapshot.board.findings if view.snapshot else ()
    if not found:
        return [(Span(" none so far", Ink.DIM),)]
    first = 0
    if scrolls(choices) is Panel.FINDINGS:
        first = min(choices.scroll, max(len(found) - height, 0))
    return [_finding_row(one, view, cells) for one in found[first : first + height]]


def _finding_row(finding: Finding, view: View, cells: int) -> Row:
    """Open ones bright, closed ones grey with how long they lasted."""
    closed = finding.closed_t is not None
    subject = "" if finding.subject in {"run", ""} else f" {clean(finding.subject)}"
    text = clean(finding.text)
    if finding.closed_t is not None and finding.severity is not Severity.INFO:
        text = f"{duration(finding.closed_t - finding.opened_t)}: {text}"
    mark = Ink.DIM if closed else severity_ink(finding.severity)
    body = Ink.DIM if closed else Ink.TEXT
    name = Ink.DIM if closed else Ink.STRONG
    return fit_row(
        (
            Span(f" {view.clock(finding.opened_t)} ", Ink.DIM),
            Span(f"{MARKS[finding.severity]} ", mark),
            Span(f"{clean(finding.failure)}{subject} ", name),
            Span(text, body),
        ),
        cells,
    )
