"""Pasted evidence in, a snapshot out: the live engine's symptoms and rules, without time.

The verdict is what the person observed, or what the evidence leaves open; within it the playbook
that explains most names the failure, as it does for a live run.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from dflash_watch.diagnosis import Diagnosis, Match, diagnose, find_roots, settling_look
from dflash_watch.engine import Engine
from dflash_watch.frame import Frame
from dflash_watch.model import (
    Confidence,
    Evidence,
    EvidenceKind,
    Snapshot,
    Source,
    Symptom,
    Verdict,
)
from dflash_watch.pasted.echoes import without_echoes
from dflash_watch.pasted.evidence import Evidence as Given
from dflash_watch.pasted.interrupt import interrupted_stacks
from dflash_watch.pasted.outlook import Outlook
from dflash_watch.pasted.records import build_options, build_records
from dflash_watch.pasted.sights import late_sights, sights
from dflash_watch.pasted.signs import places, signs_at_end, signs_in_stacks
from dflash_watch.playbooks import Playbook
from dflash_watch.steps import fill_next
from dflash_watch.units import clipped, duration

NEVER_FIRED = frozenset({"stacks-unseen", "gpu-unseen", "link-lost"})
"""Of the live engine: that there is no second look, and no way to the run, is no symptom here."""
UNDATED = Evidence(
    kind=EvidenceKind.MISSING,
    text="how old the log's last line is: say so in context.yaml, observed: {silent_s: 600}",
    source=Source.LOG,
)


def judge_pasted(given: Given, playbooks: Mapping[str, Playbook], now_t: float) -> Snapshot:
    """What the evidence says.

    Args:
        given: the evidence; nothing in it is executed or fetched.
        playbooks: failure -> playbook.
        now_t: moment to stamp on it, wall clock.
    """
    engine = Engine(build_options(given), playbooks, takes_stacks=False, is_pasted=True)
    snapshot = None
    for record in build_records(given, now_t):
        snapshot = engine.advance(record)
    frame = engine.window.frame
    if snapshot is None or frame is None:
        raise AssertionError("the records hold a frame")
    signatures = [one for book in playbooks.values() for one in book.signatures()]
    log = engine.window.logs.main()
    stacks = (*given.all_stacks, *interrupted_stacks(engine.window.logs, frame.t))
    symptoms = (
        *_usable(snapshot, frame),
        *sights(given, frame),
        *signs_in_stacks(stacks, signatures, frame.t),
        *signs_at_end(log.lines if log is not None else (), signatures, frame.t),
    )
    return _Conclusion(given, engine, snapshot, symptoms, playbooks).snapshot()


def _usable(snapshot: Snapshot, frame: Frame) -> tuple[Symptom, ...]:
    broken = any(gap.source == "gpu" and "given" not in gap.reason for gap in frame.gaps)
    lost = any(gpu.state != "ok" for gpu in frame.gpus or ())
    keep = {"gpu-unseen"} if broken or lost else set()
    return tuple(one for one in snapshot.symptoms if one.name not in NEVER_FIRED - keep)


class _Conclusion:
    """The steps from symptoms to a snapshot."""

    def __init__(
        self,
        given: Given,
        engine: Engine,
        snapshot: Snapshot,
        symptoms: tuple[Symptom, ...],
        playbooks: Mapping[str, Playbook],
    ) -> None:
        self._given, self._engine, self._live = given, engine, snapshot
        self._playbooks = playbooks
        self._outlook = Outlook(given, engine, symptoms)
        late = late_sights(given, engine, self._outlook)
        self._symptoms, self._echoes = without_echoes((*symptoms, *late), engine.window.logs)
        self._plausible = self._outlook.plausible()

    def snapshot(self) -> Snapshot:
        """The whole of it."""
        _, roots = find_roots(self._plausible, self._symptoms, self._playbooks)
        top = next((one for one in roots if one.starts), None)
        verdict, failure = self._verdict(top)
        why = self._why(verdict)
        found = diagnose(
            verdict, why, failure, self._symptoms, self._live.inconclusive, self._playbooks,
            lead=top.playbook.name if top is not None else None,
        )  # fmt: skip
        return self._filled(verdict, why, found)

    def _verdict(self, top: Match | None) -> tuple[Verdict, str | None]:
        """The verdict, and what to call it when no playbook fits."""
        if top is not None:
            return self._of(top.playbook), None
        likeliest = self._plausible[0]
        if likeliest == Verdict.CRASHED and not self._outlook.ends_in_error():
            return Verdict.BLIND, "unknown"  # nothing moves, and nothing says that it ended
        if likeliest in {Verdict.RUNNING, Verdict.FINISHED}:
            return likeliest, "healthy"
        if not self._outlook.has_any and likeliest not in {Verdict.QUIET, Verdict.INITIALISING}:
            return Verdict.BLIND, "unknown"  # silence alone says nothing
        return likeliest, None

    def _of(self, book: Playbook) -> Verdict:
        """What the person observed comes first, then what this failure usually makes of a run."""
        told = self._outlook.alive is not None and self._given.observed.silent_s is not None
        moves = self._outlook.steps_advance or self._outlook.steps_at_end()
        if not told and (moves or book.verdicts[0] != Verdict.RUNNING):
            return next(one for one in book.verdicts if one in self._plausible)
        return next(one for one in self._plausible if one in book.verdicts)

    def _why(self, verdict: Verdict) -> str:
        observed, parts = self._given.observed, []
        if observed.process_alive is not None:
            parts.append(
                "the process is alive" if observed.process_alive else "the process is gone"
            )
        if observed.silent_s is not None:
            parts.append(f"silent for {duration(observed.silent_s)}")
        if observed.first_step_seen is False:
            parts.append("no first step yet")
        if observed.steps_advancing is not None:
            parts.append("steps go on" if observed.steps_advancing else "steps do not go on")
        return ", ".join(parts) or self._by_evidence(verdict)

    def _by_evidence(self, verdict: Verdict) -> str:
        if verdict == Verdict.CRASHED and self._outlook.ends_in_error():
            return f"the log ends in an error: {clipped(self._outlook.last_words() or '')}"
        if self._outlook.is_done:
            return "the log says that the work is done"
        if self._given.all_stacks and verdict not in {Verdict.RUNNING, Verdict.SLOW}:
            return "its stacks were taken, so it is alive; nobody said whether steps go on"
        if self._outlook.steps_at_end():
            return "counters move up to the end of the log"
        if self._outlook.seen_alive:
            return "the process is there; nothing given tells whether steps go on"
        return "nobody said whether the process lives; judged by the evidence alone"

    def _filled(self, verdict: Verdict, why: str, found: Diagnosis) -> Snapshot:
        live = self._live
        book = found.playbook
        steps = book.next if book is not None else ()
        look = settling_look(live.views) if found.failure == "unknown" else None
        values: dict[str, object] = {"subject": found.subject, "log": "log.txt"}
        stand = places(self._given.all_stacks) if found.failure == "unknown" else ()
        evidence = (*self._said(why), *found.evidence, *stand, *self._missing())
        confidence = found.confidence
        if found.failure in {"unknown", "healthy"} and not self._outlook.has_any:
            confidence = Confidence.LOW
        if self._is_undated(verdict):
            confidence = Confidence.LOW
            evidence = (*evidence, UNDATED)
        return msgspec.structs.replace(
            live, verdict=verdict, last_verdict=None, failure=found.failure,
            subject=found.subject, severity=found.severity, confidence=confidence,
            summary=found.summary, evidence=tuple(dict.fromkeys(evidence)),
            explains=tuple(dict.fromkeys([*found.explains, *self._echoes])),
            candidates=found.candidates,
            since_t=live.t - (self._given.observed.silent_s or 0.0),
            next=fill_next((look, *steps) if look is not None else steps, **values),
            playbook=book.name if book is not None else None, incident=None, wants=(),
            symptoms=self._symptoms, views=self._views(),
        )  # fmt: skip

    def _is_undated(self, verdict: Verdict) -> bool:
        """A copy of a log ends in movement also when the run hung right after its last line."""
        return verdict == Verdict.RUNNING and self._outlook.seen_alive is None

    def _said(self, why: str) -> tuple[Evidence, ...]:
        return (Evidence(kind=EvidenceKind.FOR, text=why, source=Source.PROCESS),)

    def _missing(self) -> tuple[Evidence, ...]:
        """Files that were not given: missing, not healthy."""
        parts = (
            ("log", self._given.log, Source.LOG),
            ("stacks", self._given.all_stacks or self._given.stacks, Source.STACKS),
            ("GPU figures", self._given.gpus, Source.GPU),
            ("process list", self._given.all_processes or None, Source.PROCESS),
        )  # fmt: skip
        told = [(f"{name}: not given", source) for name, part, source in parts if part is None]
        told += [(note, Source.HOST) for note in self._given.notes]
        return tuple(
            Evidence(kind=EvidenceKind.MISSING, text=text, source=source) for text, source in told
        )

    def _views(self) -> dict[str, str]:
        given = {
            "log": self._given.log, "stacks": self._given.all_stacks or self._given.stacks,
            "gpu": self._given.gpus, "process": self._given.all_processes or None,
        }  # fmt: skip
        seen = self._live.views
        return {
            name: "none: not given" if part is None else seen.get(name, "ok")
            for name, part in given.items()
        }
