"""The process groups' own watchdogs tell which rank the others waited for.

Sees:       the watchdog lines of NCCL and gloo in the log: what each rank entered and ended last.
Means:      the rank with the lowest number never came to the collective in which the others wait.
Wrong when: ranks of different groups report under one name, or the late rank's newest line is lost.
Source:     docs/evidence.md, "Collectives".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dflash_watch.detectors.base import Answer, Detector, Example, View, missing, symptom
from dflash_watch.detectors.examples import example, frames, log
from dflash_watch.model import Evidence, EvidenceKind, Severity, Source
from dflash_watch.readers.collectives import RankState


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Limits."""

    outlived_s: float = 60.0
    """Steps for so long after the newest of these lines: it did not stop the run."""
    most_ranks: int = 6
    """Ranks whose state is told."""


def detect(view: View, params: Params) -> Iterator[Answer]:
    """The late ranks; or whose log would tell, when all that report agree."""
    logs, last_t = view.window.logs, view.progress.last_step_t
    since_t = logs.collectives_t
    if since_t is None:
        return
    found = logs.collectives.standing()
    late = [one for one in found.suspects if one.certain]
    if not late:
        if found.together and found.unheard:
            ranks = ", ".join(str(rank) for rank in found.unheard[:8])
            yield missing("run", f"the log of rank {ranks}: they report nothing of the collective")
        return
    facts = [_fact(_state(one)) for one in found.ranks if _state(one)][: params.most_ranks]
    facts += [_fact(text) for text in found.remarks[:2]]
    yield symptom(
        ", ".join(sorted({f"rank-{one.rank}" for one in late})),
        Severity.CRITICAL,
        since_t,
        late[0].why,
        Source.LOG,
        *facts,
        starts=last_t is None or last_t <= since_t + params.outlived_s,
    )


def _state(one: RankState) -> str:
    parts = [
        f"{what} {number}"
        for what, number in (("enqueued", one.enqueued), ("completed", one.completed))
        if number is not None
    ]
    if one.waits_in:
        parts.append(f"waits in {one.waits_in.op} {one.waits_in.seq}")
    return f"rank {one.rank}: {', '.join(parts)}" if parts else ""


def _fact(text: str) -> Evidence:
    return Evidence(kind=EvidenceKind.FOR, text=text, source=Source.LOG)


def _story(*, completed: int) -> Example:
    """Rank 0 timed out in collective 4800; rank 1 stands at another, or at the same one."""
    lines = (
        "[rank0]:[E] [PG ID 0 PG GUID 0 Rank 0] failure detected by watchdog at work sequence id: "
        "4800 PG status: last enqueued work: 4807, last completed work: 4799\n"
        "[rank1]:[E] [PG ID 0 PG GUID 0 Rank 1] Received a dump signal. Last enqueued NCCL work: "
        f"{completed}, last completed NCCL work: 4799.\n"
    )
    logs = frames(4, logs=lambda i: log(lines if i == 2 else f"step {i}\n" if i < 2 else ""))
    return example(logs, subject="rank-1" if completed == 4799 else None)


def firing() -> Example:
    """Rank 1 never entered it."""
    return _story(completed=4799)


def clear() -> Example:
    """Both are in it: the network or a device."""
    return _story(completed=4807)


DETECTOR = Detector(detect=detect, params=Params(), firing=firing, clear=clear)
