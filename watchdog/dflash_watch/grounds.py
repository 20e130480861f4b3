"""What a verdict stands on, as evidence: its own reason, what else is seen, which views broke."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from dflash_watch.detectors.base import View
from dflash_watch.diagnosis import Diagnosis
from dflash_watch.endings import Judgement
from dflash_watch.model import Evidence, EvidenceKind, Source, Symptom, Verdict
from dflash_watch.unseen import gaps
from dflash_watch.window import Window


def own_evidence(view: View, now: Judgement, symptoms: Sequence[Symptom]) -> tuple[Evidence, ...]:
    """What the verdict itself stands on, with the source of the symptom it quotes."""
    quoted = next((one.source for one in symptoms if one.summary in now.why), None)
    source = quoted or {
        "log": Source.LOG, "beats": Source.BEATS, "events": Source.EVENTS,
    }.get(view.progress.source or "", Source.PROCESS)  # fmt: skip
    if now.verdict == Verdict.BLIND and quoted is None:
        source = Source.LINK
    told = [Evidence(kind=EvidenceKind.FOR, text=now.why, source=source)]
    if now.verdict in {Verdict.RUNNING, Verdict.SLOW}:
        told += _own_sights(view.window)
    return tuple(told)


def broken_views(views: Mapping[str, str], now: Judgement, found: Diagnosis) -> list[Evidence]:
    """Views that broke; while the way is lost all of them did, and that is said."""
    return [] if found.failure in {"watch-lost", "no-run"} else gaps(views, now.verdict)


def told_once(*told: Sequence[Evidence]) -> tuple[Evidence, ...]:
    """All of them without what says again, in the same words or in fewer, what stands there."""
    kept: list[Evidence] = []
    for fact in itertools.chain(*told):
        if not any(one.kind == fact.kind and one.text.startswith(fact.text) for one in kept):
            kept.append(fact)
    return tuple(kept)


def _own_sights(window: Window) -> list[Evidence]:
    """What else is seen of a run that gets on: cards that answer, the queue."""
    told = []
    rows = window.gpus.tracks.values()
    if rows and "gpu" not in window.gaps:
        answer = sum(row.sample.state == "ok" for row in rows)
        text = f"{answer}/{len(rows)} GPUs answer"
        told.append(Evidence(kind=EvidenceKind.FOR, text=text, source=Source.GPU))
    if window.told.depths and window.told.capacity:
        text = f"queue {window.told.depths[-1][1]}/{window.told.capacity}"
        told.append(Evidence(kind=EvidenceKind.FOR, text=text, source=Source.BEATS))
    return told
