"""What could not be seen and would matter: for the failure that is named, or for the verdict."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from dflash_watch.model import Evidence, EvidenceKind, Inconclusive, Source, Symptom, Verdict
from dflash_watch.playbooks import Playbook

OPEN = frozenset({Verdict.STALLED, Verdict.QUIET, Verdict.SLOW, Verdict.BLIND})
"""Verdicts under which more sight could still name a failure."""
OVER = frozenset({Verdict.FINISHED, Verdict.CRASHED})
OF_AN_END = frozenset({"log", "events", "kernel"})
"""Sources that still tell something of a run that is over."""
AFTERWARDS = frozenset({"collective-late"})
"""Can still be had when the run has crashed: other ranks' logs."""
AS_SOURCE = {"threads": Source.PROCESS, "kernel": Source.HOST, "container-host": Source.HOST}
"""Views that evidence counts to another source."""
SOURCES = (
    ("gil-owner", Source.STACKS), ("wait-cycle", Source.STACKS), ("log-", Source.LOG),
    ("collective-late", Source.LOG),
    ("gpu-", Source.GPU), ("worker-not-", Source.GPU), ("ticker-", Source.BEATS),
    ("queue-", Source.EVENTS), ("throughput-", Source.EVENTS),
)  # fmt: skip
"""Beginning of a symptom's name -> what it is seen by; the rest by the process."""


def bearing(
    inconclusive: Sequence[Inconclusive],
    verdict: Verdict,
    named: Playbook | None,
    playbooks: Iterable[Playbook],
    there: Sequence[Symptom],
) -> list[Evidence]:
    """The undecided symptoms that matter, as evidence that is missing.

    Args:
        inconclusive: of all rules.
        verdict: as judged; a run that has ended well or gets on needs no further sight.
        named: playbook of the failure; None while nothing is named.
        playbooks: all; used while nothing is named.
        there: symptoms that fire: what is decided for one subject is not missing.
    """
    if verdict == Verdict.CRASHED:
        inconclusive = [one for one in inconclusive if one.name in AFTERWARDS]
    elif verdict not in OPEN:
        return []
    books = [named] if named is not None else [b for b in playbooks if verdict in b.verdicts]
    asked = {name for book in books for name in _asked(book)} - {one.name for one in there}
    told = [_told(one) for one in inconclusive if one.name in asked]
    return list(dict.fromkeys(told))


def gaps(views: Mapping[str, str], verdict: Verdict) -> list[Evidence]:
    """Sources that were seen and are not any more, or that refuse."""
    out = []
    for name, state in views.items():
        kind, _, why = state.partition(": ")
        if kind != "gap" or name == "link" or (verdict in OVER and name not in OF_AN_END):
            continue
        text = why if name in why.lower() else f"{name}: {why}"
        out.append(
            Evidence(
                kind=EvidenceKind.MISSING, text=text, source=AS_SOURCE.get(name) or Source(name)
            )
        )
    return out


def _asked(book: Playbook) -> set[str]:
    return {name for group in (*book.requires, *book.supports) for name in group.split("|")}


def _told(one: Inconclusive) -> Evidence:
    source = next((at for head, at in SOURCES if one.name.startswith(head)), Source.PROCESS)
    return Evidence(kind=EvidenceKind.MISSING, text=one.missing, source=source)
