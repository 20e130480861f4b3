"""Is it over, and how? Exit events, failed workers, zombies, vanished processes, last words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from dflash_watch.detectors.base import View
from dflash_watch.model import Symptom, Verdict
from dflash_watch.readers.launcherword import first_failure
from dflash_watch.window.tracks import how_it_ended

GONE_GRACE_S = 1.5
"""After the process went, for its last words to arrive."""
LAUNCHERS_OWN = "ChildFailedError"
"""What a launcher raises itself: it tells of a rank's failure, it is none."""
FEW_STEPS = 3
"""Steps that other ranks may print after one rank's last words."""
STOPS_WITHIN_S = 10.0
"""A trainer that stops when a worker fails makes no step later than that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The verdict, since when, and the plain reason for it."""

    verdict: Verdict
    since_t: float
    why: str
    failure: str | None = None
    """Name when no playbook fits."""
    past_budget: bool = False


def judge_end(
    view: View, named: Mapping[str, Symptom], previous: Judgement | None
) -> Judgement | None:
    """How it ended, if it did or certainly will; None while it lives."""
    exit_ = named.get("exit-recorded")
    if exit_ is not None:
        failed = exit_.severity == "critical"
        verdict = Verdict.CRASHED if failed else Verdict.FINISHED
        failure = None if failed else "healthy"
        return Judgement(verdict=verdict, since_t=exit_.since_t, why=exit_.summary, failure=failure)
    failed_worker = named.get("worker-failed")
    told = failed_worker is not None and failed_worker.source in {"events", "beats"}
    if (
        failed_worker is not None
        and told
        and view.window.is_ours
        and not _goes_on(view, failed_worker)
    ):
        why = f"{failed_worker.summary}; this trainer stops when a worker fails"
        return Judgement(
            verdict=Verdict.CRASHED, since_t=failed_worker.since_t, why=why, failure="worker-died"
        )
    ended = named.get("main-process-zombie") or named.get("main-process-gone")
    if ended is not None:
        return _ended(view, ended, previous)
    return _said_done(view)


def _goes_on(view: View, failed: Symptom) -> bool:
    """Steps are still made long after a worker failed: this trainer does not stop then."""
    last_t = view.progress.last_step_t
    return last_t is not None and last_t - failed.since_t > STOPS_WITHIN_S


def _ended(view: View, ended: Symptom, previous: Judgement | None) -> Judgement:
    done, main = view.window.logs.done, view.window.main()
    if done is not None and done.how == "bare" and not view.progress.is_counted_out:
        done = None
    since_t = ended.since_t
    code, _ = how_it_ended(main.sample.exit_code if main is not None else None)
    if done is not None or code == 0:
        why = f"it said {done.text!r} and ended" if done is not None else "it ended with code 0"
        return Judgement(verdict=Verdict.FINISHED, since_t=since_t, why=why, failure="healthy")
    if view.now_t - since_t < GONE_GRACE_S and previous is not None:
        return previous
    cause = _cause(view)
    zombie = ended.name == "main-process-zombie"
    hint = "; the machine's out-of-memory counter rose as it went" if _perhaps_oom(view) else ""
    if cause is not None or view.window.is_ours or zombie:
        why = f"{ended.summary}; {cause or 'no exit event was written' + hint}"
        return Judgement(
            verdict=Verdict.CRASHED, since_t=since_t, why=why, failure="main-process-died"
        )
    track = view.window.logs.main()
    last = f"; its last line: {track.lines[-1][:120]!r}" if track and track.lines else ""
    why = f"{ended.summary}{hint}{last}"
    return Judgement(verdict=Verdict.BLIND, since_t=since_t, why=why, failure="process-vanished")


def _perhaps_oom(view: View) -> bool:
    """Somebody on this machine was killed for memory at that moment."""
    return view.window.kills.on_machine()


def _cause(view: View) -> str | None:
    """What ended the main process, where kernel, launcher or log tell."""
    pid = view.window.main_pid()
    for line in reversed(view.window.kernel_log.lines):
        if re.search(rf"(?:[Kk]illed process |\bpid=){pid}\b", line):
            return f"kernel: {line[:160]}"
    told = view.window.hostside.killed([pid] if pid is not None else [])
    if told is not None:
        return f"kernel of the host: {told[1][:160]}"
    if view.window.kills.in_cgroup():
        return "the out-of-memory counter of its cgroup rose as it went"
    track = view.window.logs.main()
    first = first_failure(list(track.lines)) if track is not None else None
    if first is not None and first.code < 0:
        return first.text
    return _last_words(view) or (first.text if first is not None else None)


def _last_words(view: View) -> str | None:
    """Its own last exception, else a grave line after which hardly a step was made."""
    last_t = view.progress.last_step_t or 0.0
    for fact in reversed(view.window.logs.tracebacks):
        ends = fact.subject in {"main", "unknown", "run"} or fact.subject.startswith("rank-")
        if fact.fatal and ends and fact.t >= last_t and fact.exception != LAUNCHERS_OWN:
            return f"its last words: {fact.exception}: {fact.message[:160]}"
    for word in reversed(view.window.logs.signatures):
        if word.grave and word.t >= last_t and view.window.logs.steps_since(word) < FEW_STEPS:
            return f"its last words: {word.text[:160]}"
    return None


def _said_done(view: View) -> Judgement | None:
    done, last_t = view.window.logs.done, view.progress.last_step_t
    if done is None or done.how == "bare" or (last_t is not None and last_t > done.t):
        return None
    quiet_s = view.now_t - done.t
    sure = quiet_s >= 2.0 if done.how == "words" else view.progress.still_s(view.window) >= 10.0
    if not sure:
        return None
    return Judgement(
        verdict=Verdict.FINISHED, since_t=done.t, why=f"it says {done.text!r}", failure="healthy"
    )
