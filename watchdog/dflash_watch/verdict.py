"""The one word for a run, found by asking in a fixed order.

Can I see? Is it dead? Does the kernel hold it? Has the first step been seen? Is there progress
within the limit? Does a finite phase or moving work explain the silence? Otherwise: stalled.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from dflash_watch.detectors.base import View
from dflash_watch.endings import Judgement, judge_end
from dflash_watch.model import Severity, Source, Symptom, Verdict
from dflash_watch.units import duration

HARD_S = 6.0
"""Silence that is enough when something proves that nobody can go on."""
STILL_S = 8.0
"""Stillness before the first step that is enough when a worker has failed."""
UNSEEN_SILENCE_S = 60.0
"""The same by the log's silence alone, when work cannot be seen."""
GIL_BEFORE_STEPS_S = 60.0
"""Before the first step a C call may keep the interpreter for long: parsing, loading."""
CONFIRM_S = 10.0
"""Longest wait for stack samples before a suspicion is believed without them."""
SEEN_STILL_S = 1.0
"""Stillness that a single look must have seen."""
MOVING_LIMITS = 4.0
"""Stacks that move without work, steps or words are believed for so many limits."""
UNSTEPPED_S = 900.0
"""Work without any recognised step for so long is `quiet`, no longer `initialising`."""
ASLEEP_WITHIN_S, SLEEP_LIMIT_S = 3.0, 600.0
"""A sleep that began so soon after the last step is the script's own, and is believed so long."""
LEFT_OUT_S = 1.0
"""Least part of a silence left out that is worth words."""
QUIET_LEAST_S, QUIET_LIMITS = 600.0, 10.0
NEVER_RETURN = (
    "gpu-fallen", "gil-owner-fixed", "collective-waiting", "device-never-returns",
    "driver-call-held",
)  # fmt: skip
"""Past the limit these prove a stall, whatever burns CPU: who waits for a GPU often spins."""
WAITS = dict.fromkeys(("lock-file-wait", "forked-lock", "loader-stuck", "logger-wait"), 0.0)
"""Waits that do not end by themselves, seen in stacks, and the stillness they ask for on top of
their own before the first step."""
PHASE_FAILURES = {
    "loading": "loading", "tuning": "compile-in-progress", "compiling": "compile-in-progress",
    "warm-up": "compile-in-progress", "evaluating": "eval-in-progress",
    "checkpointing": "checkpoint-in-progress",
}  # fmt: skip


def judge(view: View, symptoms: Sequence[Symptom], previous: Judgement | None) -> Judgement:
    """The verdict of this moment."""
    named: dict[str, Symptom] = {}
    for one in symptoms:
        named.setdefault(one.name, one)
    return (
        _blind(view, named, previous)
        or judge_end(view, named, previous)
        or _held(named)
        or _starting(view, named)
        or _working(view, named, previous)
        or _silent(view, named, previous)
    )


def _blind(
    view: View, named: Mapping[str, Symptom], previous: Judgement | None
) -> Judgement | None:
    over = previous is not None and previous.verdict in {Verdict.FINISHED, Verdict.CRASHED}
    lost = named.get("link-lost")
    if lost is not None:
        if over and previous is not None:
            return previous
        return Judgement(
            verdict=Verdict.BLIND, since_t=lost.since_t, why=lost.summary, failure="watch-lost"
        )
    frame = view.window.frame
    if frame is None:
        link = view.window.sight.link
        why = f"{link.state}: {link.step or link.reason or 'no word yet'}"
        return Judgement(verdict=Verdict.BLIND, since_t=view.now_t, why=why, failure="unknown")
    if frame.run.state == "none":
        why = frame.run.note or "no run found"
        return Judgement(verdict=Verdict.BLIND, since_t=view.now_t, why=why, failure="no-run")
    return None


# -- held, starting ----------------------------------------------------------------------------


def _held(named: Mapping[str, Symptom]) -> Judgement | None:
    for name in ("process-in-stop", "process-in-disk-wait"):
        held = named.get(name)
        if held is not None and held.subject == "run":
            return Judgement(verdict=Verdict.STALLED, since_t=held.since_t, why=held.summary)
    return None


def _starting(view: View, named: Mapping[str, Symptom]) -> Judgement | None:
    progress, window = view.progress, view.window
    if progress.first_step_t is not None:
        return None
    stands = _stands(view, named) or _not_here(view, named)
    if stands is not None:
        return stands
    phase = progress.phase
    seen_s = view.now_t - (window.first_t or view.now_t)
    since_t = phase.since_t if phase is not None else window.first_t or view.now_t
    if phase is None and seen_s > UNSTEPPED_S and progress.work.moves:
        why = f"it works, and no step was recognised in {duration(seen_s)}"
        return Judgement(verdict=Verdict.QUIET, since_t=since_t, why=why, past_budget=True)
    if phase is None:
        why = "no step seen yet"
    else:
        why = f"{phase.name} for {duration(view.now_t - phase.since_t)}, no step yet"
    failure = PHASE_FAILURES.get(phase.name) if phase is not None else None
    late = "progress-overdue" in named or (phase is None and seen_s > UNSTEPPED_S)
    return Judgement(
        verdict=Verdict.INITIALISING, since_t=since_t, why=why, failure=failure, past_budget=late
    )


def _stands(view: View, named: Mapping[str, Symptom]) -> Judgement | None:
    """What proves, before any step, that there will be none."""
    still_s, unseen_s = view.progress.still_s(view.window), _unseen_silence_s(view)
    failed = _failed(named)
    if failed and (still_s >= STILL_S or unseen_s >= UNSEEN_SILENCE_S):
        moves = f"nothing moves for {duration(still_s)}"
        why = f"{failed[0].summary}; {moves if still_s else f'silent for {duration(unseen_s)}'}"
        return Judgement(verdict=Verdict.STALLED, since_t=failed[0].since_t, why=why)
    for name, least_s in (("ticker-silent", 0.0), ("wait-cycle", STILL_S), *WAITS.items()):
        one = named.get(name)
        if one is None or still_s < least_s or not one.starts:
            continue
        if name != "ticker-silent" or view.now_t - one.since_t > GIL_BEFORE_STEPS_S:
            return Judgement(verdict=Verdict.STALLED, since_t=one.since_t, why=one.summary)
    overdue = named.get("progress-overdue")
    if overdue is not None and still_s >= STILL_S:
        why = f"{overdue.summary}, nothing moves"
        return Judgement(verdict=Verdict.STALLED, since_t=overdue.since_t, why=why)
    return None


def _not_here(view: View, named: Mapping[str, Symptom]) -> Judgement | None:
    """Nothing can be said of the run from here: it is elsewhere, or nothing of it may be read."""
    elsewhere = named.get("run-elsewhere")
    if elsewhere is not None and elsewhere.source == Source.PROCESS:
        return Judgement(
            verdict=Verdict.BLIND, since_t=elsewhere.since_t, why=elsewhere.summary,
            failure="wrong-process",
        )  # fmt: skip
    unreadable = _unreadable(view)
    if unreadable is None:
        return None
    since_t = view.window.first_t or view.now_t
    return Judgement(verdict=Verdict.BLIND, since_t=since_t, why=unreadable, failure="unknown")


def _failed(named: Mapping[str, Symptom]) -> list[Symptom]:
    """Workers that ended in an error, and texts that prove a failure which stops runs."""
    return [
        one
        for name, one in named.items()
        if name == "worker-failed" or (name.startswith("logged-") and one.severity != Severity.INFO)
    ]


def _unreadable(view: View) -> str | None:
    """Nothing that could tell a step may be read: the process is there, and no more is known."""
    window = view.window
    gap = window.gaps.get("log")
    if gap is None or "not allowed" not in gap.reason:
        return None
    return None if window.answered & {"log", "events", "beats"} else gap.reason


def _unseen_silence_s(view: View) -> float:
    """Silence of the log while neither processes nor GPUs can be seen; 0 when they can."""
    if view.progress.work.moves is not None:
        return 0.0
    return view.window.logs.silent_s(view.now_t) or 0.0


# -- working -----------------------------------------------------------------------------------


def _hard(view: View, named: Mapping[str, Symptom]) -> Symptom | None:
    """What proves that nobody can go on, whatever the learned limit says."""
    age_s = view.age_s() or 0.0
    if age_s < HARD_S:
        return None
    for name in ("wait-cycle", "ticker-silent"):
        if name in named:
            return named[name]
    if "work-still" in named or view.progress.still_s(view.window) >= HARD_S:
        for name in ("worker-failed", "worker-not-taking", "worker-not-giving"):
            if name in named and named[name].starts:
                return named[name]
    return None


def _working(
    view: View, named: Mapping[str, Symptom], previous: Judgement | None
) -> Judgement | None:
    hard = _hard(view, named)
    if hard is not None:
        since_t = min(hard.since_t, view.now_t)
        return Judgement(verdict=Verdict.STALLED, since_t=since_t, why=hard.summary)
    age_s = view.age_s() or 0.0
    if age_s > view.limit.seconds:
        return None
    since_t = view.progress.first_step_t or view.now_t
    why = _since_step(view)
    for name in ("throughput-low", "worker-not-taking", "worker-not-giving"):
        low = named.get(name)
        slow_already = previous is not None and previous.verdict == Verdict.SLOW
        if low is not None and (low.starts or slow_already):
            return Judgement(verdict=Verdict.SLOW, since_t=low.since_t, why=f"{why}; {low.summary}")
    return Judgement(verdict=Verdict.RUNNING, since_t=since_t, why=why, failure="healthy")


def _silent(view: View, named: Mapping[str, Symptom], previous: Judgement | None) -> Judgement:
    in_phase = _in_phase(view, named)
    if in_phase is not None:
        return in_phase
    now_t, age_s = view.now_t, view.age_s() or 0.0
    silence = f"no step for {_shown_age(view)} (limit {duration(view.limit.seconds)}"
    silence += f": {view.limit.why}{_counted(view)})"
    since_t = now_t - age_s
    for name in NEVER_RETURN:
        held = named.get(name)
        if held is not None and held.starts:
            return _unexplained(Verdict.STALLED, since_t, silence, held.summary)
    if view.progress.work.moves:
        return _working_silently(view, since_t, silence)
    if view.progress.work.moves is None:
        return _unseen_work(view, named, since_t, silence)
    if _sleeps_on_purpose(view, named, age_s):
        why = f"{silence}; the main thread is in one sleep call since its last step"
        return Judgement(verdict=Verdict.QUIET, since_t=since_t, why=why)
    still = f"nothing moved for {duration(view.progress.still_s(view.window))}"
    if _is_confirmed(view):
        return _unexplained(Verdict.STALLED, since_t, silence, still)
    fresh = view.suspect_since_t is None or now_t - view.suspect_since_t < CONFIRM_S
    if previous is not None and previous.verdict != Verdict.QUIET and fresh:
        return _still(view, previous)
    return _unexplained(Verdict.QUIET, since_t, silence, still)


def _in_phase(view: View, named: Mapping[str, Symptom]) -> Judgement | None:
    """Quiet within the budget of a finite phase, if the run is in one.

    One that only stacks or log tell of does not excuse a wait that never ends.
    """
    phase = view.progress.phase
    if phase is None:
        return None
    waits = next((named[name] for name in WAITS if name in named and named[name].starts), None)
    if waits is not None and phase.source != "events":
        return Judgement(verdict=Verdict.STALLED, since_t=waits.since_t, why=waits.summary)
    if "progress-overdue" in named:
        return None
    why = f"{phase.name} for {duration(view.now_t - phase.since_t)}"
    why += f" (budget {duration(phase.budget_s)})"
    return Judgement(
        verdict=Verdict.QUIET, since_t=phase.since_t, why=why,
        failure=PHASE_FAILURES.get(phase.name),
    )  # fmt: skip


def _since_step(view: View) -> str:
    limit = duration(view.limit.seconds)
    return f"last step {_shown_age(view)} ago (limit {limit}{_counted(view)})"


def _still(view: View, previous: Judgement) -> Judgement:
    """The judgement so far, its words of this moment."""
    if previous.verdict not in {Verdict.RUNNING, Verdict.SLOW}:
        return previous
    _, _, more = previous.why.partition(")")
    return dataclasses.replace(previous, why=_since_step(view) + more)


def _shown_age(view: View) -> str:
    """Age of the last step: the figure of the board, so that no two are told."""
    return duration(view.progress.last_step_age_s(view.window) or 0.0)


def _counted(view: View) -> str:
    """Says so when the limit is held against less than the age that is shown."""
    shown_s = view.progress.last_step_age_s(view.window) or 0.0
    counted_s = view.age_s() or 0.0
    if shown_s <= view.limit.seconds or shown_s - counted_s < LEFT_OUT_S:
        return ""
    return f"; {duration(counted_s)} count, the rest is a known phase or was not seen"


def _sleeps_on_purpose(view: View, named: Mapping[str, Symptom], age_s: float) -> bool:
    """The thread that made the last step went straight into a sleep that still lasts.

    A main thread that only keeps others company began its sleep at another time, one that polls
    wakes up in between.
    """
    main = view.window.main()
    if main is None or main.asleep_since_t is None or age_s > SLEEP_LIMIT_S:
        return False
    if _failed(named):
        return False
    return abs(main.asleep_since_t - (view.now_t - age_s)) <= ASLEEP_WITHIN_S


def _unexplained(verdict: Verdict, since_t: float, silence: str, why: str) -> Judgement:
    return Judgement(
        verdict=verdict, since_t=since_t, why=f"{silence}; {why}",
        failure="unknown" if verdict == Verdict.BLIND else None,
        past_budget=verdict == Verdict.QUIET,
    )  # fmt: skip


def _working_silently(view: View, since_t: float, silence: str) -> Judgement:
    """Work moves: quiet, for a time."""
    budget_s = max(QUIET_LEAST_S, QUIET_LIMITS * view.limit.seconds)
    if (view.age_s() or 0.0) > budget_s:
        why = f"work moves, but for longer than {duration(budget_s)}"
        return _unexplained(Verdict.STALLED, since_t, silence, why)
    cores = view.progress.work.cpu_cores
    why = f"{silence}; work moves" + (f" ({cores:.1f} cores)" if cores is not None else "")
    return Judgement(verdict=Verdict.QUIET, since_t=since_t, why=why)


def _unseen_work(
    view: View, named: Mapping[str, Symptom], since_t: float, silence: str
) -> Judgement:
    """Nothing is known about work: only hard evidence in the log may say more than blind."""
    dead = named.get("worker-failed")
    if dead is not None:
        return _unexplained(Verdict.STALLED, since_t, silence, dead.summary)
    if view.window.tracks.processes:
        why = "one look cannot tell whether work moves"
        return _unexplained(Verdict.QUIET, since_t, silence, why)
    why = "neither processes nor GPUs can be seen"
    return _unexplained(Verdict.BLIND, since_t, silence, why)


def _is_confirmed(view: View) -> bool:
    """Two samples in which nothing moved, or a reason why there are none, or enough waiting."""
    if not view.takes_stacks:  # what was silent long before this look has been waited for
        still_s = view.progress.still_s(view.window)
        return still_s >= SEEN_STILL_S and view.silent_over_s() > CONFIRM_S
    if view.suspect_since_t is None:
        return False
    if view.comparison is not None:
        late = (view.age_s() or 0.0) > MOVING_LIMITS * view.limit.seconds
        compared = (view.comparison, *view.standing.values())
        return late or not any(one.that("moving", "working") for one in compared)
    return view.now_t - view.suspect_since_t > CONFIRM_S
