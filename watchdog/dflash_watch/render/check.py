"""`dflash-watch check`: one line and an exit code, as Nagios and its kin want them."""

from __future__ import annotations

from dflash_watch.errors import EXIT_CRITICAL, EXIT_OK, EXIT_UNKNOWN, EXIT_WARNING
from dflash_watch.model import Board, Severity, Snapshot, Verdict
from dflash_watch.readers.lines import printable
from dflash_watch.units import duration

TEXT_LIMIT = 400
"""Characters before the figures; some collectors cut at 1 KiB."""
RUN_LIMIT = 60
"""Characters of a run's name."""
_STATUS = {
    EXIT_OK: "OK",
    EXIT_WARNING: "WARNING",
    EXIT_CRITICAL: "CRITICAL",
    EXIT_UNKNOWN: "UNKNOWN",
}
_VERDICT = {
    Verdict.RUNNING: EXIT_OK,
    Verdict.FINISHED: EXIT_OK,
    Verdict.INITIALISING: EXIT_OK,
    Verdict.QUIET: EXIT_OK,
    Verdict.SLOW: EXIT_WARNING,
    Verdict.STALLED: EXIT_CRITICAL,
    Verdict.CRASHED: EXIT_CRITICAL,
    Verdict.BLIND: EXIT_UNKNOWN,
}
_SEVERITY = {
    Severity.INFO: EXIT_OK,
    Severity.WARNING: EXIT_WARNING,
    Severity.CRITICAL: EXIT_CRITICAL,
}


def exit_code(snapshot: Snapshot) -> int:
    """The worse of verdict and severity; 3 when nothing can be seen, however severe that is."""
    if snapshot.verdict is Verdict.BLIND:
        return EXIT_UNKNOWN
    code = max(_VERDICT[snapshot.verdict], _SEVERITY[snapshot.severity])
    finite = snapshot.verdict in (Verdict.INITIALISING, Verdict.QUIET)
    return max(code, EXIT_WARNING) if finite and _is_past_budget(snapshot.board) else code


def render_check(snapshot: Snapshot, code: int) -> str:
    """`DFLASH CRITICAL - ...` line: status, verdict, failure, subject, run, sentence, then figures.

    How long a run gets on already is left out: two looks know only of themselves.
    """
    what = snapshot.verdict.value
    if snapshot.verdict not in (Verdict.RUNNING, Verdict.SLOW):
        what += f" for {duration(max(snapshot.t - snapshot.since_t, 0.0))}"
    if snapshot.names_failure:
        subject = "" if snapshot.subject == "run" else f" ({snapshot.subject})"
        what = f"{what}, {snapshot.failure}{subject}"
    if snapshot.board.run_name or snapshot.board.pid is not None:
        what = f"{what}, run {snapshot.run[:RUN_LIMIT]}"
    text = printable(f"{what}: {snapshot.summary}").replace("|", "/").replace("\n", " ")
    if len(text) > TEXT_LIMIT:
        text = text[: TEXT_LIMIT - 3] + "..."
    figures = _figures(snapshot.board)
    status = f"DFLASH {_STATUS[code]} - {text}"
    return f"{status} | {' '.join(figures)}" if figures else status


def _figures(board: Board) -> list[str]:
    known = (
        ("step", board.step, "", board.total_steps),
        ("tokens_per_s", board.tokens_per_s, "", None),
        ("step_age", board.last_step_age_s, "s", None),
    )
    return [
        f"{name}={value:g}{unit}" + (f";;;0;{most}" if most else "")
        for name, value, unit, most in known
        if value is not None
    ]


def _is_past_budget(board: Board) -> bool:
    spent, budget = board.phase_s, board.phase_budget_s
    return spent is not None and budget is not None and spent > budget
