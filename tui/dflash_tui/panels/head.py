"""The top of the screen: header, banner, why, and what to do. One question, answered at once."""

from __future__ import annotations

from dflash_watch.model import IncidentStage, Serving, Severity, Snapshot

from dflash_tui.cells import Ink, Row, Span, clean, cut, fit_row, row_width, spread, width
from dflash_tui.phrases import count, duration, known, open_findings, pace, percent, reasons
from dflash_tui.state import Choices
from dflash_tui.theme import GLYPHS, State
from dflash_tui.view import View

STEPS = ("resolve", "ssh", "container", "agent", "first sample")
HEALTHY = frozenset({"healthy", ""})


def header(view: View, choices: Choices, cells: int) -> Row:
    """Where, which run, how far, how long still, and the time of day."""
    narrow = cells < 100
    right: Row = (Span(f" {view.clock(view.wall_s)} ", Ink.STRONG),)
    if choices.paused is not None:
        right = (Span(f" PAUSED {view.clock(choices.paused.view.wall_s)} ", Ink.QUIET),)
    snapshot = view.snapshot
    if snapshot is None:
        return spread((Span(" dflash-watch", Ink.STRONG),), right, cells)
    if snapshot.serving is not None and snapshot.link.state != "closed":
        right = (Span(_served(snapshot.serving, narrow=cells < 140), Ink.KEY), *right)
    board = snapshot.board
    where, run = clean(board.where), clean(board.run_name or snapshot.run)
    stands = view.state in {State.FINISHED, State.CRASHED, State.STALLED}
    far = _progress(snapshot, narrow=narrow, eta_s=None if stands else known(board.eta_s))
    if narrow:
        where = where.replace(" · ct ", "/").replace(" · ", "/")
    else:
        where = f"dflash-watch   {where}"
        run = f"run {run}"
    gap = " " if narrow else "   "
    room = cells - row_width(right) - width(far) - 2 * len(gap) - 2
    name = cut(where, max(room // 2, room - width(run)))
    run = cut(run, max(room - width(name), 8))
    left = (
        Span(f" {name}{gap}", Ink.DIM if narrow else Ink.TEXT),
        Span(run, Ink.STRONG),
        Span(f"{gap}{far}"),
    )
    return spread(left, right, cells)


def _served(serving: Serving, *, narrow: bool) -> str:
    """That this is a visit: leaving it ends nothing."""
    if narrow:
        return " served"
    others = serving.viewers - 1
    with_whom = f" +{others}" if others > 0 else ""
    return f" served by {cut(clean(serving.name), 24)}{with_whom}"


def _progress(snapshot: Snapshot, *, narrow: bool, eta_s: float | None) -> str:
    """`step 41 200 / 120 000  34.3 %   ETA 11 h 02 m`."""
    board = snapshot.board
    if board.step is None and not board.total_steps:
        return "step –"
    join, total = ("/" if narrow else " / "), board.total_steps
    text = f"step {count(board.step, short=narrow)}"
    if total:
        text += f"{join}{count(total, short=narrow)}"
        if board.step is not None:
            share = min(max(board.step / total, 0.0), 1.0) * 100
            text += f" {share:.0f}%" if narrow else f"  {share:.1f} %"
    if eta_s is not None and eta_s > 0:
        text += f"{'  ' if narrow else '   '}ETA {duration(eta_s, short=narrow)}"
    return text


def banner(view: View, choices: Choices, cells: int) -> Row:
    """State, since when, its figures; at the right, always whole, how old the data is."""
    ink, narrow = view.state.ink, cells < 100
    age = "no data yet" if view.data_age_s is None else f"data {duration(view.data_age_s)} old"
    if choices.paused is not None:
        age = f"panels paused · {age}"
    gap = "  " if narrow else "    "
    held = "" if view.held_s is None else f" {duration(view.held_s, short=narrow)}"
    parts = [f"{GLYPHS[view.state]} {view.state.word}{held}", *_facts(view, narrow=narrow)]
    right = f"  {age} "
    left = _fitting([part for part in parts if part], gap, cells - width(right) - 2)
    return spread((Span(f" {left}", ink),), (Span(right, ink),), cells, ink)


def _fitting(parts: list[str], gap: str, room: int) -> str:
    """State and cause, the cause cut if it must be; then what else fits as a whole."""
    line = cut(gap.join(parts[:2]), room)
    for part in parts[2:]:
        if width(line) + len(gap) + width(part) > room:
            break
        line += gap + part
    return line


def _facts(view: View, *, narrow: bool) -> list[str]:
    """What the banner must say in this state."""
    snapshot = view.snapshot
    if snapshot is None:
        return ["waiting for the first answer"]
    said = _acknowledged(view, snapshot, narrow=narrow)
    step = _step(view, narrow=narrow)
    match view.state:
        case State.CONNECTING | State.NO_RUN:
            watching = f"watching {clean(snapshot.board.where)}"
            return [_connecting(snapshot) if view.state is State.CONNECTING else watching]
        case State.BLIND:
            return _blind_facts(view, snapshot, narrow=narrow)
        case State.FINISHED:
            ended = f"ended {view.clock(snapshot.since_t)}"
            return [ended, f"{count(snapshot.board.step)} steps", _named(snapshot)]
        case State.CRASHED:
            at = f"at {view.clock(snapshot.since_t)}"
            return [_named(snapshot), said, at, step]
        case State.INITIALISING:
            return [_phase(snapshot), _budget(snapshot, view.elapsed_s)]
        case State.QUIET:
            return [_phase(snapshot), _turns(snapshot), step]
    speed = _speed(view, snapshot, narrow=narrow)
    return [
        _named(snapshot),
        said,
        *((step, speed) if view.state is State.STALLED else (speed, step)),
        _open(snapshot, narrow=narrow),
    ]


def _acknowledged(view: View, snapshot: Snapshot, *, narrow: bool) -> str:
    """That somebody knows of what is open, and since when."""
    incident = snapshot.incident
    if incident is None or incident.stage is IncidentStage.RESOLVED:
        return ""
    if incident.acknowledged_t is None:
        return ""
    return "ack" if narrow else f"acknowledged {view.clock(incident.acknowledged_t)}"


def _blind_facts(view: View, snapshot: Snapshot, *, narrow: bool) -> list[str]:
    last = view.last_known
    if not view.frozen:
        return [_named(snapshot), f"last known: {last.value.upper()}" if last else ""]
    at = view.clock(snapshot.data_t)
    was = f"last known: {last.value.upper()} at {at}" if last else "nothing known before"
    return [was, "" if narrow else "verdict withheld: no fresh data"]


def _connecting(snapshot: Snapshot) -> str:
    step = clean(snapshot.link.step or "")
    if step in STEPS:
        return " → ".join(STEPS[: STEPS.index(step) + 1]) + " …"
    return step or "waiting for the first answer"


def _named(snapshot: Snapshot) -> str:
    """`pipeline-deadlock drafter-1`; nothing when healthy."""
    if snapshot.failure in HEALTHY:
        return ""
    subject = "" if snapshot.subject in {"run", ""} else f" {clean(snapshot.subject)}"
    return clean(snapshot.failure) + subject


def _speed(view: View, snapshot: Snapshot, *, narrow: bool) -> str:
    board = snapshot.board
    now, usual = known(board.tokens_per_s), known(board.baseline_tokens_per_s)
    if now is None:
        steps = known(board.steps_per_s)
        was = "was " if view.state is State.STALLED else ""
        return "" if steps is None else f"{was}{pace(steps, 'steps/s')} steps/s"
    text = f"{count(now)} tok/s"
    if view.state is State.STALLED and now > 0:
        return f"was {text}"
    if not usual or usual <= 0 or now <= 0:
        return text
    share = percent(now / usual)
    return f"{text} ({share})" if narrow else f"{text} = {share} of baseline"


def _open(snapshot: Snapshot, *, narrow: bool) -> str:
    number = open_findings(snapshot)
    return f"{number} open" if narrow else f"{number} open finding{'' if number == 1 else 's'}"


def _step(view: View, *, narrow: bool) -> str:
    age = known(view.snapshot.board.last_step_age_s) if view.snapshot else None
    if age is None:
        return ""
    old = duration(age + view.elapsed_s, short=narrow)
    return f"{'step' if narrow else 'last step'} {old} ago"


def _phase(snapshot: Snapshot) -> str:
    """What is thought to go on."""
    return _named(snapshot) or clean(snapshot.board.phase or "")


def _budget(snapshot: Snapshot, elapsed_s: float) -> str:
    board = snapshot.board
    budget, since = known(board.phase_budget_s), known(board.phase_s)
    if budget is None or since is None:
        return ""
    left = budget - since - elapsed_s
    return f"late in {duration(left)}" if left > 0 else f"{duration(-left)} past its usual time"


def _turns(snapshot: Snapshot) -> str:
    limit = snapshot.limit
    return "" if limit is None else f"stalled after {duration(limit.seconds)}"


def why(view: View, cells: int) -> Row:
    """The evidence by weight, cut at the right."""
    return _labelled("why", _why(view), Ink.TEXT, cells)


def _why(view: View) -> str:
    snapshot = view.snapshot
    if snapshot is None:
        return "nothing has arrived yet"
    is_calm = view.state is State.RUNNING and snapshot.severity is Severity.INFO
    told = reasons(snapshot, calm=is_calm)
    if view.state is State.CONNECTING:
        return clean(snapshot.link.reason or snapshot.summary)
    if view.frozen:
        return " · ".join(part for part in _blind_why(view, snapshot) if part)
    if is_calm and told:
        return told
    summary = clean(snapshot.summary)
    fresh = [part for part in told.split(" · ") if part and part not in summary]
    return " · ".join([summary, *fresh])


def _blind_why(view: View, snapshot: Snapshot) -> list[str]:
    link = snapshot.link
    known_reason = link.reason or (snapshot.summary if snapshot.verdict.value == "blind" else None)
    parts = [clean(known_reason or "the watcher has stopped answering")]
    if link.retry_at_t is not None and link.state != "closed":
        wait = duration(max(link.retry_at_t - view.wall_s, 0.0))
        parts.append(f"retry in {wait} (r: now)")
    if snapshot.data_t is not None:
        parts.append(f"figures below are frozen at {view.clock(snapshot.data_t)}")
    return parts


def what_to_do(view: View, cells: int) -> Row:
    """The next steps, in order."""
    snapshot = view.snapshot
    steps = [] if snapshot is None else [clean(step) for step in snapshot.next]
    text = " · ".join(steps) or "enter shows all that is known"
    return _labelled("do", text, Ink.STRONG, cells)


def needs_action(view: View) -> bool:
    """Is there something to do, so that its line is worth its row?"""
    bad = {State.STALLED, State.CRASHED, State.BLIND, State.SLOW}
    snapshot = view.snapshot
    if snapshot is None or not snapshot.next:
        return False
    return view.state in bad or snapshot.severity is not Severity.INFO


def _labelled(label: str, text: str, ink: Ink, cells: int) -> Row:
    return fit_row((Span(f" {label:<4}", Ink.KEY), Span(text, ink), Span(" ")), cells)
