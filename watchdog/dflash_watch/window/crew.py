"""The ranks of a run of several processes, by the number that their launcher gave them. Pure."""

from __future__ import annotations

from dflash_watch.window.tracks import ZOMBIE, ProcessTrack, Tracks


def rank_of(tracks: Tracks, pid: int) -> int | None:
    """The rank that this process works for; None in a run that has not several."""
    process = tracks.process(pid)
    return process.sample.rank if process is not None and len(leaders(tracks)) > 1 else None


def called(tracks: Tracks, pid: int) -> str:
    """`rank-1 (process 12)`, `process 13 of rank-1`, or `process 14` where no ranks are known."""
    rank = rank_of(tracks, pid)
    if rank is None:
        return f"process {pid}"
    leader = leaders(tracks).get(rank)
    leads = leader is not None and leader.sample.pid == pid
    return f"rank-{rank} (process {pid})" if leads else f"process {pid} of rank-{rank}"


def leaders(tracks: Tracks, *, also_dead: bool = False) -> dict[int, ProcessTrack]:
    """Rank -> the process that trains for it, lowest rank first; loader workers inherit the number.

    The leader's parent has no such number, or another; of several the eldest.

    Args:
        tracks: the run's processes.
        also_dead: zombies count as well.
    """
    found: dict[int, ProcessTrack] = {}
    for one in tracks.processes.values():
        rank = one.sample.rank
        if rank is None or (one.track.state in ZOMBIE and not also_dead):
            continue
        parent = tracks.process(one.sample.ppid)
        if parent is not None and parent.sample.rank == rank:
            continue
        known = found.get(rank)
        if known is None or one.sample.start_ticks < known.sample.start_ticks:
            found[rank] = one
    return dict(sorted(found.items()))
