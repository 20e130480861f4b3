"""The two pages that take the middle of the screen: all that is known, and the keys."""

from __future__ import annotations

from collections.abc import Iterable

from dflash_watch.model import VERDICT_MEANINGS, EvidenceKind, Snapshot

from dflash_tui.cells import Ink, Row, Span, clean, width
from dflash_tui.keys import Key
from dflash_tui.phrases import duration, known
from dflash_tui.theme import GLYPHS, State
from dflash_tui.view import View

MEANINGS = {
    **{State[verdict.name]: text for verdict, text in VERDICT_MEANINGS.items()},
    State.CONNECTING: "on the way to the run",
    State.NO_RUN: "connected, and nothing to watch yet",
}


def details(view: View, cells: int) -> list[Row]:
    """Everything behind the verdict, as long as it is."""
    snapshot = view.snapshot
    if snapshot is None:
        return [(Span(" nothing has arrived yet", Ink.DIM),)]
    rows: list[Row] = []
    rows += _wrapped("verdict", [_verdict(snapshot, view)], cells, Ink.STRONG)
    rows += _wrapped("summary", [snapshot.summary], cells, Ink.TEXT)
    for kind, name in (
        (EvidenceKind.FOR, "for"),
        (EvidenceKind.AGAINST, "against"),
        (EvidenceKind.MISSING, "missing"),
    ):
        told = [f"{one.text}  ({one.source})" for one in snapshot.evidence if one.kind is kind]
        rows += _wrapped(name, told, cells, Ink.TEXT)
    rows += _wrapped("explains", [", ".join(snapshot.explains)], cells, Ink.DIM)
    rows += _wrapped("or else", _candidates(snapshot), cells, Ink.DIM)
    if snapshot.limit is not None:
        limit = f"{duration(snapshot.limit.seconds)}: {snapshot.limit.why}"
        rows += _wrapped("limit", [limit], cells, Ink.TEXT)
    rows += _wrapped("do", list(snapshot.next), cells, Ink.STRONG)
    if snapshot.playbook:
        read = f"dflash-watch explain {snapshot.playbook}"
        rows += _wrapped("playbook", [read], cells, Ink.KEY)
    if snapshot.incident is not None:
        rows += _wrapped("incident", [_incident(snapshot, view)], cells, Ink.TEXT)
    if snapshot.stacks_path:
        rows += _wrapped("stacks", [snapshot.stacks_path], cells, Ink.TEXT)
    rows += _wrapped("taken", list(snapshot.stacks_way), cells, Ink.DIM)
    open_too = [f"{one.name} {one.subject}: {one.summary}" for one in snapshot.symptoms]
    rows += _wrapped("symptoms", open_too, cells, Ink.TEXT)
    undecided = [f"{one.name} {one.subject}: {one.missing}" for one in snapshot.inconclusive]
    rows += _wrapped("undecided", undecided, cells, Ink.DIM)
    return rows + _wrapped("views", _views(snapshot), cells, Ink.DIM)


def _views(snapshot: Snapshot) -> list[str]:
    """Sources that do not answer, each on its line; then those that do."""
    said = sorted(snapshot.views.items())
    fine = ", ".join(source for source, state in said if state == "ok")
    broken = [f"{source}: {state}" for source, state in said if state != "ok"]
    return [*broken, f"ok: {fine}"] if fine else broken


def _verdict(snapshot: Snapshot, view: View) -> str:
    subject = "" if snapshot.subject in {"run", ""} else f" {snapshot.subject}"
    sure = f"{snapshot.severity}, confidence {snapshot.confidence}"
    since = view.clock(snapshot.since_t)
    return f"{snapshot.verdict.upper()} since {since}: {snapshot.failure}{subject} ({sure})"


def _candidates(snapshot: Snapshot) -> list[str]:
    return [
        f"{one.failure} {one.subject} {known(one.score) or 0.0:.2f}"
        for one in snapshot.candidates
        if one.failure != snapshot.failure
    ]


def _incident(snapshot: Snapshot, view: View) -> str:
    incident = snapshot.incident
    if incident is None:
        return ""
    stacks = ", ".join(incident.stack_labels) or incident.stacks_missing or "not taken yet"
    known = incident.acknowledged_t
    by = "" if known is None else f", acknowledged {view.clock(known)}"
    return f"{incident.stage}{by}, stacks: {stacks}, in {incident.path or 'not written yet'}"


def _wrapped(name: str, texts: Iterable[str], cells: int, ink: Ink) -> list[Row]:
    """A label and its texts, broken between words."""
    rows: list[Row] = []
    room = max(cells - 14, 8)
    for text in texts:
        for line in _broken(clean(text), room):
            label = name if not rows else ""
            rows.append((Span(f"  {label:<10}", Ink.KEY), Span(line, ink)))
    return rows


def _broken(text: str, room: int) -> list[str]:
    """Lines of at most `room` cells, broken at blanks where there are any."""
    lines: list[str] = []
    line = ""
    for word in text.split():
        rest = word
        while width(rest) > room:
            if line:
                lines.append(line)
                line = ""
            head = next(n for n in range(len(rest), 0, -1) if width(rest[:n]) <= room)
            lines.append(rest[:head])
            rest = rest[head:]
        joined = f"{line} {rest}" if line else rest
        if width(joined) > room:
            lines.append(line)
            joined = rest
        line = joined
    return [*lines, line] if line else lines


def help_page(keys: Iterable[Key], cells: int) -> list[Row]:
    """Keys of this screen, made from the bindings, and what the banner's words mean."""
    rows: list[Row] = [(Span(" Keys", Ink.TITLE),)]
    entries = [(key.shown, key.help) for key in keys if key.help]
    half = (len(entries) + 1) // 2 if cells >= 100 else len(entries)
    for index in range(half):
        row: list[Span] = []
        for name, text in entries[index::half]:
            row += [Span(f"  {name:<13}", Ink.KEY), Span(f"{text:<42}" if cells >= 100 else text)]
        rows.append(tuple(row))
    rows += [(), (Span(" States", Ink.TITLE),)]
    for state, meaning in MEANINGS.items():
        word = Span(f" {GLYPHS[state]} {state.word:<13}", state.ink)
        rows.append((Span("  "), word, Span(f" {meaning}")))
    rows += [(), (Span("  Mouse: click a panel to focus it, wheel scrolls.", Ink.DIM),)]
    return rows
