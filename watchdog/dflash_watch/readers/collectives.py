"""Where each rank stands in its collectives, and which rank the others wait for.

Pure records and one judgement over them; `flightrecorder` and `collectivelog` fill them from text.
Numbers are counted per process group, so only ranks of one group are compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """One collective as one rank recorded it."""

    seq: int
    op: str
    """`ALLREDUCE`, `all_reduce`: lower case without underscores when compared."""
    sizes: str = ""
    """Input sizes, as written."""
    state: str | None = None
    """`scheduled`, `started`, `completed`."""
    frames: tuple[str, ...] = ()
    """`function file:line`, innermost first, where recorded."""


class RankState(msgspec.Struct, frozen=True, kw_only=True):
    """One rank in one process group; None is not said."""

    rank: int | None
    group: str = ""
    """`0(default_pg)`, as written; empty where the text names none."""
    enqueued: int | None = None
    started: int | None = None
    completed: int | None = None
    waits_in: Work | None = None
    """The oldest collective that has not ended."""
    timed_out: bool = False
    """Its own watchdog gave up on that collective."""
    waited_s: float | None = None
    timeout_s: float | None = None
    works: tuple[Work, ...] = ()
    """The newest recorded, oldest first."""
    size: int | None = None
    """Ranks in the group."""

    @property
    def reached(self) -> int | None:
        """The last collective that it is known to have entered."""
        known = [self.enqueued, self.started, self.waits_in.seq if self.waits_in else None]
        return max((one for one in known if one is not None), default=self.completed)


class Suspect(msgspec.Struct, frozen=True, kw_only=True):
    """A rank that the others wait for."""

    rank: int
    group: str
    why: str
    certain: bool = True
    """False where only its silence speaks against it."""


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """All ranks, and what follows from them."""

    ranks: tuple[RankState, ...] = ()
    suspects: tuple[Suspect, ...] = ()
    mismatch: str | None = None
    """Ranks called different collectives at one number."""
    together: bool = False
    """All known ranks stand in the same collective: the network or a device, not a late rank."""
    unheard: tuple[int, ...] = ()
    """Ranks of whom nothing is said: first to be asked when all that report agree."""
    remarks: tuple[str, ...] = ()
    """What a reader of these numbers must know."""
    note: str | None = None
    """What could not be read, and what to do instead."""


def assess(states: Iterable[RankState], note: str | None = None) -> Standing:
    """Which ranks lag, group by group; nothing is concluded from one rank alone."""
    ranks = tuple(states)
    groups: dict[str, list[RankState]] = {}
    for one in ranks:
        groups.setdefault(one.group, []).append(one)
    suspects: list[Suspect] = []
    mismatch: str | None = None
    together = False
    for name, members in groups.items():
        mismatch = mismatch or mismatch_in(members)
        found = [*_late(name, members), *_silent(name, members)]
        suspects += found
        waiting = [one for one in members if one.waits_in]
        together = together or (len(waiting) > 1 and not found and len(waiting) == len(members))
    return Standing(
        ranks=ranks,
        suspects=tuple(suspects),
        mismatch=mismatch,
        together=together and mismatch is None and not suspects,
        unheard=_unheard(ranks),
        remarks=tuple(filter(None, (_late_clock(one) for one in ranks))),
        note=note,
    )


def _unheard(ranks: tuple[RankState, ...]) -> tuple[int, ...]:
    known = {one.rank for one in ranks if one.rank is not None}
    size = max((one.size for one in ranks if one.size), default=0)
    if len(known) < 2 and not size:
        return ()
    return tuple(rank for rank in range(max([size - 1, *known]) + 1) if rank not in known)[:64]


def _late_clock(one: RankState) -> str | None:
    if one.waited_s is None or not one.timeout_s or one.waited_s < 2 * one.timeout_s:
        return None
    return (
        f"rank {one.rank}'s watchdog fired after {one.waited_s:.0f} s with a limit of"
        f" {one.timeout_s:.0f} s: its clock cannot date the hang"
    )


def mismatch_in(members: Iterable[RankState]) -> str | None:
    """The first collective that ranks of a group entered with different operations or sizes."""
    by_seq: dict[int, list[tuple[int | None, Work]]] = {}
    for one in members:
        works = {work.seq: work for work in one.works}
        if one.waits_in:
            works.setdefault(one.waits_in.seq, one.waits_in)
        for seq, work in works.items():
            by_seq.setdefault(seq, []).append((one.rank, work))
    for seq in sorted(by_seq):
        rows = by_seq[seq]
        for key in (_op, _sizes):
            kinds = Counter(key(work) for _, work in rows)
            if len(kinds) > 1 and all(kinds):
                common = kinds.most_common(1)[0][0]
                rank, work = next((r, w) for r, w in rows if key(w) != common)
                other = next(w for _, w in rows if key(w) == common)
                return (
                    f"collective {seq}: rank {rank} called {work.op} {work.sizes}".rstrip()
                    + f", others {other.op} {other.sizes}".rstrip()
                )
    return None


def _op(work: Work) -> str:
    return work.op.lower().replace("_", "").rpartition(":")[2]


def _sizes(work: Work) -> str:
    # Gathers, scatters, sends and splits may differ in size by design.
    return work.sizes if _op(work) in ("allreduce", "broadcast", "reduce") else "any"


def _late(group: str, members: list[RankState]) -> list[Suspect]:
    """Ranks that never entered the collective in which others wait."""
    waited = [one.waits_in.seq for one in members if one.waits_in and one.timed_out]
    waited = waited or [one.waits_in.seq for one in members if one.waits_in]
    if not waited:
        return []
    # A rank that waits at a lower number than the others holds them up, if it is one group.
    awaited = max(waited) if len(set(waited)) > 1 else waited[0]
    late = [one for one in members if one.reached is not None and one.reached < awaited]
    if not late or len(late) == len(members):
        return []
    lowest = min(one.reached for one in late if one.reached is not None)
    waiting = next(one for one in members if one.waits_in and one.waits_in.seq == awaited)
    op = waiting.waits_in.op if waiting.waits_in else "a collective"
    return [
        Suspect(
            rank=one.rank,
            group=group,
            why=f"rank {one.rank} reached collective {one.reached}; rank {waiting.rank} waits in"
            f" {op} {awaited}",
        )
        for one in late
        if one.reached == lowest and one.rank is not None
    ]


def _silent(group: str, members: list[RankState]) -> list[Suspect]:
    """Ranks of a group of known size that reported nothing while others gave up."""
    size = max((one.size for one in members if one.size), default=0)
    known = {one.rank for one in members}
    gone = [rank for rank in range(size) if rank not in known]
    if not gone or len(gone) > max(size // 2, 1) or not any(one.waits_in for one in members):
        return []
    return [
        Suspect(rank=rank, group=group, why=f"rank {rank} reported nothing", certain=False)
        for rank in gone
    ]
