"""Failures ranked by what their playbooks require, and one root cause instead of many alarms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from dflash_watch.model import (
    Candidate,
    Confidence,
    Evidence,
    EvidenceKind,
    Inconclusive,
    Severity,
    Source,
    Symptom,
    Verdict,
)
from dflash_watch.playbooks import Playbook
from dflash_watch.unseen import bearing

RANK = {Severity.INFO: 0, Severity.WARNING: 1, Severity.CRITICAL: 2}
BASE, PER_REQUIRED, PER_SUPPORT, PER_CONTRADICTION = 0.5, 0.1, 0.08, 0.3
MOST_EVIDENCE = 14
SETTLING_LOOKS = (
    ("process", "look at threads and processes where the run lives: top -H -p {pid}"),
    ("stacks", "take stacks, they settle it: dflash-watch dump --pid {pid}"),
    ("log", "see which file the process really writes: ls -l /proc/{pid}/fd"),
    ("gpu", "look at the GPUs on the host: nvidia-smi"),
)
"""Source -> the look that helps most while it cannot be seen, most telling first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """The failure that explains most, and what it hides."""

    failure: str
    subject: str
    severity: Severity
    confidence: Confidence
    summary: str
    since_t: float | None
    evidence: tuple[Evidence, ...]
    explains: tuple[str, ...]
    candidates: tuple[Candidate, ...]
    playbook: Playbook | None
    steps: tuple[str, ...] = ()
    """What to do next, not filled in."""


@dataclass(frozen=True, slots=True)
class Match:
    """A playbook whose required symptoms are all there."""

    playbook: Playbook
    required: tuple[Symptom, ...]
    supporting: tuple[Symptom, ...]
    against: tuple[Symptom, ...]

    @property
    def score(self) -> float:
        """0..1."""
        points = BASE + PER_REQUIRED * min(len(self.required), 3)
        points += PER_SUPPORT * min(len(self.supporting), 3)
        return max(min(points - PER_CONTRADICTION * len(self.against), 1.0), 0.0)

    @property
    def starts(self) -> bool:
        """May it name the run? Symptoms that only keep something alive do not."""
        return any(one.starts for one in self.required)

    @property
    def lasts(self) -> bool:
        """It slows a run and never stops it: steps that go on do not speak against it.

        Where old words are one sign of several, the others tell whether it still holds.
        """
        book = self.playbook
        is_only_sign = not any("|" in group for group in book.requires)
        return is_only_sign and set(book.verdicts) <= {Verdict.SLOW, Verdict.RUNNING}

    def order(self) -> tuple[int, float, int, int]:
        """For sorting: most severe, then by score, told first, most explained."""
        first = min((one.order for one in self.required if one.order), default=0)
        return RANK[self.playbook.severity], self.score, -first, len(self.playbook.explains)


def diagnose(
    verdict: Verdict,
    why: str,
    named: str | None,
    symptoms: Sequence[Symptom],
    inconclusive: Sequence[Inconclusive],
    playbooks: Mapping[str, Playbook],
    lead: str | None = None,
) -> Diagnosis:
    """Root cause of this moment.

    Args:
        verdict: as judged.
        why: its plain reason, for want of a better sentence.
        named: failure that the judgement itself stands on, when no playbook fits.
        symptoms: all that are there.
        inconclusive: what could not be decided.
        playbooks: failure -> playbook.
        lead: failure found before over several verdicts (`find_roots`): it stays the root.
    """
    if any(one.name == "link-lost" for one in symptoms):
        inconclusive = ()  # nothing at all can be seen: no need to list what
    matches, roots = find_roots((verdict,), symptoms, playbooks)
    roots.sort(key=lambda one: one.playbook.name == lead, reverse=True)
    top = next((one for one in roots if one.starts), None)
    if top is None and verdict == Verdict.SLOW and roots:
        top = roots[0]  # between the two bounds of a figure that hovers
    ranked = sorted(matches, key=Match.order, reverse=True)
    candidates = tuple(
        Candidate(failure=one.playbook.name, score=round(one.score, 2), subject=_subject(one))
        for one in sorted(ranked, key=lambda one: one is not top)[:6]
    )
    if top is None:
        return _unmatched(verdict, why, named, symptoms, inconclusive, candidates, playbooks)
    hidden = [one.playbook.name for one in matches if one is not top and _hides(top, one)]
    firing = {one.name for one in symptoms}
    explained = [name for name in top.playbook.explains if name in firing]
    return Diagnosis(
        failure=top.playbook.name,
        subject=_subject(top),
        severity=_severity(top, verdict),
        confidence=_confidence(top),
        summary=_sentence(top, verdict, why),
        since_t=min(one.since_t for one in top.required),
        evidence=_evidence(top, why, bearing(inconclusive, verdict, top.playbook, (), symptoms)),
        explains=tuple(dict.fromkeys([*explained, *hidden])),
        candidates=candidates,
        playbook=top.playbook,
        steps=tuple(dict.fromkeys([*_own_steps(top), *top.playbook.next])),
    )


def _own_steps(match: Match) -> Iterator[str]:
    for one in match.required:
        yield from one.next


def find_roots(
    verdicts: Sequence[Verdict], symptoms: Sequence[Symptom], playbooks: Mapping[str, Playbook]
) -> tuple[list[Match], list[Match]]:
    """All playbooks that fit one of the verdicts, and those of them that no other explains away.

    Returns:
        Matches in the order of the playbooks; roots, the best first.
    """
    found = (_match(book, verdicts, symptoms) for book in playbooks.values())
    matches = [match for match in found if match is not None]
    roots = [one for one in matches if not any(_hides(other, one) for other in matches)]
    return matches, sorted(roots, key=Match.order, reverse=True)


def _match(
    book: Playbook, verdicts: Sequence[Verdict], symptoms: Sequence[Symptom]
) -> Match | None:
    if not book.requires or not set(verdicts) & set(book.verdicts):
        return None
    required: list[Symptom] = []
    for group in book.requires:
        names = group.split("|")
        found = [one for name in names for one in symptoms if one.name == name]
        if not found:
            return None
        required.extend(found)
    supporting = tuple(one for one in symptoms if one.name in book.supports)
    against = tuple(one for one in symptoms if one.name in book.contradicts)
    return Match(book, tuple(required), supporting, against)


def _hides(one: Match, other: Match) -> bool:
    """Does `one` explain `other` away? Never both ways: then the order decides."""
    if one is other or not (one.starts or one.lasts):
        return False
    return _explains(one, other) and not (_explains(other, one) and other.order() >= one.order())


def _explains(one: Match, other: Match) -> bool:
    explains = set(one.playbook.explains)
    if other.playbook.name in explains:
        return True
    return all(symptom.name in explains for symptom in other.required)


def _subject(match: Match) -> str:
    named = dict.fromkeys(one.subject for one in match.required if one.subject != "run")
    if len(named) > 1:
        first = match.required[0].name
        named = dict.fromkeys(one.subject for one in match.required if one.name == first)
    if match.required[0].name.startswith("logged-"):
        failed = [one for one in match.supporting if one.name == "worker-failed"]
        named.update(dict.fromkeys(one.subject for one in failed))
    parts = {part for subject in named for part in subject.split(", ")}
    return ", ".join(sorted(parts)) or "run"


def _severity(match: Match, verdict: Verdict) -> Severity:
    """As the playbook says; whatever makes a run slow is worth a warning."""
    least = Severity.WARNING if verdict == Verdict.SLOW else Severity.INFO
    return max(match.playbook.severity, least, key=RANK.__getitem__)


def _confidence(match: Match) -> Confidence:
    if match.against:
        return Confidence.LOW
    sources = {one.source for one in (*match.required, *match.supporting)}
    return Confidence.HIGH if len(sources) >= 2 else Confidence.MEDIUM


def _sentence(match: Match, verdict: Verdict, why: str) -> str:
    detail = match.required[0].summary
    detail = why if why.startswith(detail) else detail
    if not match.playbook.summary:
        return f"{match.playbook.title}: {detail}"
    subject = _subject(match)
    return match.playbook.summary.format(
        subject="the run" if subject == "run" else subject,
        detail=detail,
        since=why,
        others=_others(match, verdict),
    )


def _others(match: Match, verdict: Verdict) -> str:
    """What the other workers do after one failed. A trainer that tells of it stops them."""
    if verdict == Verdict.STALLED:
        return "the others wait for it"
    tells = any(one.source == Source.EVENTS for one in match.required)
    if verdict == Verdict.CRASHED:
        return "the trainer stopped the others" if tells else "the run ended with it"
    return "the trainer stops the others" if tells else "the others go on without it"


def settling_look(views: Mapping[str, str]) -> str | None:
    """The one look that would settle an unknown: at the most telling source not seen."""
    unseen = (one for one in SETTLING_LOOKS if not views.get(one[0], "").startswith("ok"))
    return next((look for _, look in unseen), None)


def _evidence(match: Match, why: str, unseen: Sequence[Evidence]) -> tuple[Evidence, ...]:
    told = [
        fact
        for one in (*match.required, *match.supporting)
        for fact in one.evidence
        if fact.text != why
    ]
    told += [
        Evidence(kind=EvidenceKind.AGAINST, text=one.summary, source=one.source)
        for one in match.against
    ]
    return tuple(dict.fromkeys([*told, *unseen]))[:MOST_EVIDENCE]


def _unmatched(
    verdict: Verdict,
    why: str,
    named: str | None,
    symptoms: Sequence[Symptom],
    inconclusive: Sequence[Inconclusive],
    candidates: tuple[Candidate, ...],
    playbooks: Mapping[str, Playbook],
) -> Diagnosis:
    failure = named or "unknown"
    book = playbooks.get(failure)
    bad = verdict in {Verdict.STALLED, Verdict.CRASHED}
    severity = Severity.CRITICAL if bad else Severity.INFO
    if verdict in {Verdict.BLIND, Verdict.SLOW}:
        severity = Severity.WARNING
    told = [fact for one in symptoms if not one.name.startswith("queue-") for fact in one.evidence]
    if failure == "healthy":  # trouble that names nothing speaks against it
        told = [msgspec.structs.replace(fact, kind=EvidenceKind.AGAINST) for fact in told]
    sure = failure not in {"unknown"} and not bad
    unseen = []
    if failure != "no-run":  # nothing there is no lost data
        named_book = book if failure != "unknown" else None
        unseen = bearing(inconclusive, verdict, named_book, playbooks.values(), symptoms)
    return Diagnosis(
        failure=failure, subject="run", severity=severity,
        confidence=Confidence.HIGH if sure else Confidence.LOW,
        summary=why, since_t=None,
        evidence=tuple(dict.fromkeys([*told, *unseen]))[:MOST_EVIDENCE],
        explains=(), candidates=candidates, playbook=book,
        steps=book.next if book is not None else (),
    )  # fmt: skip
