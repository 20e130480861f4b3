"""The engine: one record in, one snapshot out. No I/O, no clock: the records carry the time.

The stream of records is the only input, so a recording replayed gives the same verdicts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

import msgspec

from dflash_watch.board import build_board
from dflash_watch.census import Census, is_near_a_killer, other_pids
from dflash_watch.comparisons import Comparisons
from dflash_watch.detectors import run_all
from dflash_watch.detectors.base import View
from dflash_watch.detectors.collective_waiting import guilty_pid
from dflash_watch.diagnosis import Diagnosis, diagnose, settling_look
from dflash_watch.endings import Judgement
from dflash_watch.findings import Findings, Line, notable
from dflash_watch.frame import Frame, Record
from dflash_watch.grounds import broken_views, own_evidence, told_once
from dflash_watch.history import gaps_before
from dflash_watch.incidents import BAD, Incidents, Situation
from dflash_watch.limits import LearnedLimits
from dflash_watch.model import (
    Limit,
    Link,
    RunOptions,
    Severity,
    Snapshot,
    StackRequest,
    Symptom,
    Verdict,
)
from dflash_watch.playbooks import Playbook
from dflash_watch.profiles import Profile, profile_key
from dflash_watch.progress import Progress
from dflash_watch.readers.facts import Signature
from dflash_watch.readers.logtext import LogReader
from dflash_watch.remembered import Recall, Remembered
from dflash_watch.steps import fill_next, place_values
from dflash_watch.verdict import judge
from dflash_watch.views import views_of
from dflash_watch.window import Window
from dflash_watch.window.waits import read_waits

SUSPICIOUS = frozenset(
    {
        "process-in-stop", "process-in-disk-wait", "ticker-silent", "wait-cycle", "work-still",
        "progress-overdue", "worker-not-taking", "worker-not-giving", "exit-overdue",
        "collective-waiting", "device-never-returns", "driver-call-held",
    }
)  # fmt: skip


OVER = frozenset({Verdict.FINISHED, Verdict.CRASHED})
AFTER_THE_END = frozenset({"progress-overdue", "work-still", "log-silent"})
"""That nothing goes on is no symptom of a run that is over."""


class Engine:
    """Everything between a record and a snapshot, for one run.

    Args:
        options: what the person said about the run.
        playbooks: failure -> playbook (`playbooks.load_playbooks`).
        limits: learned in an earlier watching of the same run; of another they are dropped.
        takes_stacks: the stack samples that snapshots want will be taken.
        profiles: of earlier runs, by `profiles.profile_key`.
        is_pasted: the evidence is all there will ever be.
        remembered: what an earlier watcher knew; of another run it is dropped.
    """

    def __init__(
        self,
        options: RunOptions,
        playbooks: Mapping[str, Playbook],
        *,
        limits: LearnedLimits | None = None,
        takes_stacks: bool = True,
        profiles: Mapping[str, Profile] | None = None,
        is_pasted: bool = False,
        remembered: Remembered | None = None,
    ) -> None:
        self._takes_stacks, self._profiles = takes_stacks, profiles or {}
        self._key: str | None = None
        self._options, self._playbooks = options, playbooks
        signatures = tuple(
            one for one in _signatures(playbooks.values()) if is_pasted or not one.weak
        )
        self._window = Window(lambda: LogReader(signatures), signatures)
        self._brought, self._remembered = limits, remembered
        self._restarts = -1
        self._snapshot: Snapshot | None = None
        self._begin()

    def _begin(self) -> None:
        """A run is seen for the first time, or another took its place."""
        self._restarts = self._window.restarts
        self._progress, self._findings = Progress(), Findings()
        self._limits, self._incidents = LearnedLimits(), Incidents()
        self._judgement: Judgement | None = None
        self._seeing: Judgement | None = None
        """The newest judgement that was not blind."""
        self._census = Census()
        self._alarmed = False
        self._comparisons = Comparisons()
        self._recall, self._remembered = Recall(self._remembered), None

    @property
    def remembered(self) -> Remembered | None:
        """What a watcher that takes our place should know; None before a run was seen."""
        frame, seen, identity = self._window.frame, self._seeing, self._window.identity
        if frame is None or seen is None or self._recall.is_waiting or not any(identity):
            return None
        return Remembered(
            pid=identity[0], start_ticks=identity[1], run_id=identity[2], t=frame.t,
            verdict=seen.verdict, since_t=seen.since_t,
            incident=self._incidents.open, last=self._incidents.last,
        )  # fmt: skip

    @property
    def limits(self) -> LearnedLimits:
        """What was learned; `to_data` of it survives a restart of the watchdog."""
        return self._limits

    @property
    def profile(self) -> tuple[str, Profile] | None:
        """Under which name later runs of this command find what this one taught."""
        taught = self._limits.profile(self._window.now_t)
        if self._key is None or taught is None:
            return None
        before = self._profiles.get(self._key)
        return self._key, taught if before is None else before.blended(taught)

    @property
    def progress(self) -> Progress:
        """Steps, phases and work of the run."""
        return self._progress

    @property
    def window(self) -> Window:
        """The bounded past, for whoever renders more than a snapshot holds."""
        return self._window

    def advance(self, record: Record) -> Snapshot:
        """What is known after this record."""
        if not self._window.take(record) and self._snapshot is not None:
            return self._snapshot
        if self._window.restarts != self._restarts:
            self._begin()
        self._learn()
        view = self._view()
        symptoms, inconclusive = run_all(view)
        judgement = self._judge(view, symptoms)
        if judgement.verdict == Verdict.FINISHED:
            symptoms = _shown(symptoms, judgement.verdict)
        diagnosis = diagnose(
            judgement.verdict, judgement.why, judgement.failure, symptoms, inconclusive,
            self._playbooks,
        )  # fmt: skip
        wants = self._advance_incident(view, judgement, diagnosis, symptoms)
        if isinstance(record, Frame) and self._incidents.rounds.since_t is None:
            wants += self._census.advance(self._window, judgement.verdict)
        self._note_findings(judgement, diagnosis, symptoms)
        snapshot = self._publish(view, judgement, diagnosis, symptoms, wants)
        self._snapshot = msgspec.structs.replace(
            snapshot, symptoms=_shown(symptoms, judgement.verdict), inconclusive=inconclusive
        )
        return self._snapshot

    # -- one cycle -------------------------------------------------------------------------

    def _learn(self) -> None:
        self._adopt()
        self._recollect()
        had_steps = self._progress.first_step_t is not None
        gap = self._progress.advance(self._window)
        self._learn_phases()
        if not had_steps and self._progress.first_step_t is not None:
            self._learn_from_before()
        if gap is not None:
            if not self._alarmed:
                self._limits.observe(gap.phase, gap.longest_s, gap.steps, gap.over_s)
            self._alarmed = False

    def _learn_phases(self) -> None:
        """Finite phases that ended teach; the one that lasts gets what earlier ones taught."""
        ended, phase = self._progress.ended, self._progress.phase
        if ended is not None:
            spent_s = self._window.now_t - ended.since_t
            if spent_s <= ended.budget_s:
                self._limits.observe_phase(ended.name, spent_s)
        if phase is not None and phase.budget_why is not None:
            limit = self._limits.budget(phase.name, phase.budget_s)
            self._progress.phase = replace(phase, budget_s=limit.seconds, budget_why=limit.why)

    def _learn_from_before(self) -> None:
        """The first steps that are seen may be the last of many."""
        if not self._limits.is_taught("training"):
            for gap in gaps_before(self._window):
                self._limits.observe(gap.phase, gap.longest_s, gap.steps, gap.over_s)

    def _adopt(self) -> None:
        """Limits brought along are taken when they are this run's own."""
        pid, ticks, run_id = self._window.identity
        identity = f"{run_id}/{pid}/{ticks}"
        if pid is None or self._limits.identity == identity:
            return
        brought, self._brought = self._brought, None
        if brought is not None and brought.identity == identity:
            self._limits = brought
        self._limits.identity = identity
        main = self._window.main()
        self._key = profile_key(self._options.where, main.sample.cmd) if main is not None else None
        self._limits.prior = self._profiles.get(self._key or "")

    def _recollect(self) -> None:
        """An incident that was open goes on; the silence that it was about teaches nothing."""
        known = self._recall.meet(self._window)
        if known is None:
            return
        self._incidents.open, self._incidents.last = known.incident, known.last
        self._alarmed = known.verdict in BAD
        if (finding := self._recall.finding()) is not None:
            self._findings.note(finding)

    def _limit(self) -> Limit:
        phase = self._progress.phase
        if phase is not None:
            why = phase.budget_why or f"budget of {phase.name}, known from {phase.source}"
            return Limit(seconds=phase.budget_s, why=why)
        return self._limits.limit("training")

    def _view(self) -> View:
        window, progress, limits = self._window, self._progress, self._limits
        since_t, ticks = self._incidents.rounds.since_t, window.ticks_per_s
        return View(
            window=window, progress=progress, limit=limits.limit("training"),
            is_taught=limits.is_taught("training"), options=self._options,
            waits=read_waits(window.told.workers), suspect_since_t=since_t,
            comparison=self._comparisons.current(window.samples, since_t, ticks),
            standing=self._comparisons.standing(
                window.samples, since_t, progress.last_step_t, ticks
            ),
            takes_stacks=self._takes_stacks,
        )  # fmt: skip

    def _judge(self, view: View, symptoms: tuple[Symptom, ...]) -> Judgement:
        now = judge(view, symptoms, self._seeing)
        before = self._judgement
        if before is not None and before.verdict == now.verdict and now is not before:
            now = Judgement(
                verdict=now.verdict, since_t=before.since_t, why=now.why, failure=now.failure,
                past_budget=now.past_budget,
            )  # fmt: skip
        self._judgement = now = self._recall.judged(now, view.now_t, self._progress.last_step_t)
        if now.verdict != Verdict.BLIND:
            self._seeing = now
        if now.verdict in BAD or view.is_overdue():
            self._alarmed = True
        return now

    def _advance_incident(
        self, view: View, now: Judgement, found: Diagnosis, symptoms: tuple[Symptom, ...]
    ) -> tuple[StackRequest, ...]:
        book = found.playbook
        opens = now.verdict in BAD or (book is not None and book.incident and bool(found.since_t))
        names = {one.name for one in symptoms}
        overdue = view.is_due() and view.is_taught and self._progress.phase is None
        overdue = overdue or is_near_a_killer(view)
        gone = view.window.is_gone() or "main-process-zombie" in names
        ended = now.verdict in {Verdict.FINISHED, Verdict.CRASHED} and "exit-overdue" not in names
        own_word = (
            view.window.is_ours
            and found.failure == "worker-died"
            and (now.verdict == Verdict.CRASHED)
        )
        wants_stacks = now.verdict == Verdict.STALLED or (book is not None and book.stacks)
        since_t = found.since_t if found.since_t is not None else now.since_t
        situation = Situation(
            now_t=view.now_t, verdict=now.verdict, failure=found.failure, subject=found.subject,
            severity=found.severity, since_t=min(since_t, view.now_t),
            is_suspicious=not ended and (bool(names & SUSPICIOUS) or overdue or opens),
            opens=opens, wants_stacks=wants_stacks and not own_word and not (ended and gone),
            pid=None if gone else _whose_stacks(view, names),
            others=() if gone else other_pids(view.window),
            no_stacks=_no_stacks(view.window, gone=gone, own_word=own_word),
            is_remembered=self._recall.holds(
                self._incidents.open, now.verdict, view.now_t, view.progress.last_step_t
            ),
        )  # fmt: skip
        return self._incidents.advance(situation, self._window.samples.newest)

    def _note_findings(
        self, now: Judgement, found: Diagnosis, symptoms: tuple[Symptom, ...]
    ) -> None:
        lines = list(notable(symptoms, found.explains))
        if found.since_t is not None and found.playbook is not None:
            used = {one for group in found.playbook.requires for one in group.split("|")}
            lines = [line for line in lines if line.name not in used]
            lines.insert(0, _line(found, found.since_t))
        elif now.verdict in BAD:
            lines.insert(0, _line(found, now.since_t))
        if now.verdict == Verdict.BLIND:
            lines = lines[:1]
        self._findings.advance(self._window.now_t, lines)

    # -- the snapshot ----------------------------------------------------------------------

    def _publish(
        self,
        view: View,
        now: Judgement,
        found: Diagnosis,
        symptoms: tuple[Symptom, ...],
        wants: tuple[StackRequest, ...],
    ) -> Snapshot:
        window, frame = self._window, self._window.frame
        board = build_board(
            window, self._progress, self._options, self._findings.listed(),
            is_over=now.verdict in OVER,
        )  # fmt: skip
        views = views_of(window)
        steps = found.steps
        look = settling_look(views) if found.failure == "unknown" else None
        steps = (look, *steps) if look is not None else steps
        blind = now.verdict == Verdict.BLIND
        severity = found.severity
        if now.past_budget and severity == Severity.INFO:
            severity = Severity.WARNING
        if frame is None and window.sight.link.state == "connecting":
            severity = Severity.INFO  # not seen yet is no trouble
        return Snapshot(
            t=window.now_t, data_t=frame.t if frame is not None else None,
            run=board.run_name or (f"pid {board.pid}" if board.pid else "run"),
            verdict=now.verdict, since_t=now.since_t,
            last_verdict=self._seeing.verdict if blind and self._seeing else None,
            failure=found.failure, subject=found.subject, severity=severity,
            confidence=found.confidence, summary=found.summary,
            evidence=told_once(
                own_evidence(view, now, symptoms), found.evidence, broken_views(views, now, found),
                self._recall.evidence(view.now_t),
            ),
            explains=found.explains, candidates=found.candidates, limit=self._limit(),
            views=views,
            next=fill_next(
                steps, pid=board.pid, subject=found.subject, run_dir=board.run_dir,
                log=board.log.path, **place_values(self._options.where),
            ),
            playbook=found.playbook.name if found.playbook is not None else None,
            incident=self._incidents.shown, wants=wants, link=_link(window), board=board,
        )  # fmt: skip


def _shown(symptoms: tuple[Symptom, ...], verdict: Verdict) -> tuple[Symptom, ...]:
    if verdict not in OVER:
        return symptoms
    return tuple(one for one in symptoms if one.name not in AFTER_THE_END)


def _line(found: Diagnosis, since_t: float) -> Line:
    return Line(
        found.failure, found.subject, found.severity, since_t, found.summary, is_failure=True
    )


def _whose_stacks(view: View, names: Collection[str]) -> int | None:
    """The process whose stacks tell most: of ranks that wait for a peer, the peer."""
    guilty = guilty_pid(view) if "collective-waiting" in names else None
    return guilty if guilty is not None else view.window.main_pid()


def _no_stacks(window: Window, *, gone: bool, own_word: bool) -> str | None:
    if own_word:
        return "the trainer's own event carries the traceback"
    if gone:
        return "the process is not there any more"
    return None if window.tracks.processes else "no process can be seen to take stacks of"


def _signatures(playbooks: Iterable[Playbook]) -> tuple[Signature, ...]:
    return tuple(one for book in playbooks for one in book.signatures())


def _link(window: Window) -> Link:
    change = window.sight.link
    retry_at_t = change.t + change.retry_in_s if change.retry_in_s is not None else None
    return Link(
        state=change.state, step=change.step, reason=change.reason,
        since_t=window.sight.link_since_t, retry_at_t=retry_at_t,
    )  # fmt: skip
