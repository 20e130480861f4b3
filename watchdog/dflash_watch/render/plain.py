"""Lines for people: one a change, and a sign of life at a slow pace.

Readable at three in the morning: what, since when, why, what to do, in that order. Changes are
told once; a heartbeat is dim and short.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from datetime import tzinfo

from dflash_watch.model import EvidenceKind, Finding, Incident, Link, Severity, Snapshot, Verdict
from dflash_watch.readers.lines import printable
from dflash_watch.units import NO_TIME, TIME, count, duration, fine, moment, percent

HEARTBEAT_S = 60.0
INDENT = " " * 10
EVIDENCE_LIMIT = 6
_BAD = {Verdict.STALLED, Verdict.CRASHED, Verdict.BLIND, Verdict.SLOW}
_COLOUR = {Severity.INFO: "32", Severity.WARNING: "33", Severity.CRITICAL: "31"}
_KIND = {EvidenceKind.FOR: "because", EvidenceKind.AGAINST: "but", EvidenceKind.MISSING: "unknown"}


class PlainLines:
    """Turns snapshots into lines; remembers what was said.

    Args:
        is_coloured: escape codes for colour may be used.
        heartbeat_s: longest silence while nothing changes, by the watched host's clock.
        width: characters a line is wrapped to.
        zone: of the times shown; None is this machine's own.
    """

    def __init__(
        self,
        *,
        is_coloured: bool = False,
        heartbeat_s: float = HEARTBEAT_S,
        width: int = 110,
        zone: tzinfo | None = None,
    ) -> None:
        self._is_coloured, self._heartbeat_s = is_coloured, heartbeat_s
        self._width, self._zone = width, zone
        self._said: tuple[object, ...] | None = None
        self._said_t = 0.0
        self._findings: dict[str, bool] = {}
        self._incident: tuple[object, ...] | None = None

    def lines(self, snapshot: Snapshot) -> list[str]:
        """What this snapshot is worth, often nothing."""
        out = [*self._change(snapshot), *self._edges(snapshot), *self._kept(snapshot)]
        if not out and abs(snapshot.t - self._said_t) >= self._heartbeat_s:
            out = [self._stamp(snapshot.t, self._paint(heartbeat(snapshot), "2"))]
        if out:
            self._said_t = snapshot.t
        return out

    def _change(self, snapshot: Snapshot) -> Iterator[str]:
        link = snapshot.link
        is_new = snapshot.data_t is None and link.state in ("connecting", "up")
        stage = (link.state, link.step) if is_new else None
        now = (snapshot.verdict, snapshot.failure, snapshot.subject, snapshot.severity, stage)
        if now == self._said:
            return
        self._said = now
        if is_new:
            yield self._stamp(snapshot.t, _arriving(snapshot.link))
            return
        word = self._paint(f"{snapshot.verdict.value.upper():<12}", _COLOUR[snapshot.severity], "1")
        is_named = snapshot.subject == "run" or snapshot.subject in snapshot.summary
        subject = "" if is_named else f"{snapshot.subject}: "
        name = f"  [{snapshot.failure}]" if snapshot.names_failure else ""
        since_s = max(snapshot.t - snapshot.since_t, 0.0)
        since = f"  (for {duration(since_s)})" if since_s >= 1 else ""
        yield self._stamp(
            snapshot.t, f"{word} {printable(subject + snapshot.summary)}{name}{since}"
        )
        if snapshot.verdict in _BAD or snapshot.severity is not Severity.INFO:
            yield from self._details(snapshot)

    def _details(self, snapshot: Snapshot) -> Iterator[str]:
        for one in snapshot.evidence[:EVIDENCE_LIMIT]:
            yield from self._wrapped(f"{_KIND[one.kind]:<8} ", f"{one.text} ({one.source.value})")
        if snapshot.explains:
            yield from self._wrapped(f"{'explains':<8} ", ", ".join(snapshot.explains))
        for number, step in enumerate(snapshot.next, 1):
            yield from self._wrapped(f"{'do ' + str(number):<8} ", step)
        if snapshot.playbook:
            yield from self._wrapped(f"{'more':<8} ", f"dflash-watch explain {snapshot.playbook}")

    def _edges(self, snapshot: Snapshot) -> Iterator[str]:
        """Findings that opened or closed and are not what the verdict line says."""
        seen: dict[str, bool] = {}
        for one in reversed(snapshot.board.findings):
            closed = one.closed_t is not None
            seen[one.key] = closed
            is_verdict = one.failure == snapshot.failure and not closed
            if self._findings.get(one.key) == closed or is_verdict:
                continue
            if one.severity is Severity.INFO or (closed and one.key not in self._findings):
                continue
            yield self._finding(one)
        self._findings = seen

    def _finding(self, one: Finding) -> str:
        if one.closed_t is not None:
            lasted = duration(one.closed_t - one.opened_t)
            return self._stamp(one.closed_t, f"  over: {printable(one.text)} (after {lasted})")
        mark = self._paint("  found:", _COLOUR[one.severity])
        return self._stamp(one.opened_t, f"{mark} {printable(one.text)}  [{one.failure}]")

    def _kept(self, snapshot: Snapshot) -> Iterator[str]:
        incident, before = snapshot.incident, self._incident
        if incident is None:
            return
        now = self._incident = (incident.key, incident.path, incident.acknowledged_t)
        if incident.acknowledged_t is not None and now != before:
            yield self._stamp(snapshot.t, f"  acknowledged: {printable(incident.failure)}")
        if incident.path is not None and now[:2] != (before or ())[:2]:
            yield self._stamp(snapshot.t, f"  kept: {incident.path}{_stacks(incident)}")

    def _wrapped(self, head: str, text: str) -> list[str]:
        return textwrap.wrap(
            printable(text),
            width=self._width,
            initial_indent=INDENT + head,
            subsequent_indent=INDENT + " " * len(head),
            break_on_hyphens=False,
            break_long_words=False,
        )

    def _stamp(self, t: float, text: str) -> str:
        return f"{moment(t, TIME, self._zone, NO_TIME)}  {text}"

    def _paint(self, text: str, *codes: str) -> str:
        return f"\x1b[{';'.join(codes)}m{text}\x1b[0m" if self._is_coloured else text


def heartbeat(snapshot: Snapshot) -> str:
    """The short sign of life: verdict and the figures that are known."""
    board, queue = snapshot.board, snapshot.board.queue
    parts = [f"{snapshot.verdict.value} for {duration(max(snapshot.t - snapshot.since_t, 0.0))}"]
    if board.step is not None:
        parts.append(f"step {board.step}" + (f"/{board.total_steps}" if board.total_steps else ""))
    if board.tokens_per_s is not None:
        rate = f"{count(board.tokens_per_s)} tok/s"
        if board.baseline_tokens_per_s:
            rate += f" ({percent(board.tokens_per_s / board.baseline_tokens_per_s)} of baseline)"
        parts.append(rate)
    elif board.steps_per_s is not None:
        parts.append(f"{fine(board.steps_per_s)} steps/s")
    if board.loss is not None:
        parts.append(f"loss {board.loss:.3f}")
    if queue is not None and queue.depth is not None:
        parts.append(f"queue {queue.depth}" + (f"/{queue.capacity}" if queue.capacity else ""))
    if board.last_step_age_s is not None:
        parts.append(f"last step {duration(board.last_step_age_s)} ago")
    if board.phase not in (None, "training") and board.phase_s is not None:
        parts.append(f"{board.phase} {duration(board.phase_s)}")
    return ", ".join(parts)


def _arriving(link: Link) -> str:
    """Before the first sample there is no verdict worth the name."""
    if link.state == "up":
        return "connected, waiting for the first sample"
    again = f" ({printable(link.reason)})" if link.reason else ""
    return f"connecting: {link.step or 'first try'}{again}"


def _stacks(incident: Incident) -> str:
    if incident.stack_labels:
        return f" ({len(incident.stack_labels)} stack samples)"
    return f" (no stacks: {incident.stacks_missing})" if incident.stacks_missing else ""
