"""Whose stacks are taken: while all is well for the names of threads, later of all processes.

A thread that vanishes later has no name any more.
"""

from __future__ import annotations

from dflash_watch.detectors.base import View
from dflash_watch.model import StackRequest, Verdict
from dflash_watch.window import Window
from dflash_watch.window.crew import leaders
from dflash_watch.window.tracks import ZOMBIE

EVERY_S = 60.0
SETTLE_S = 3.0
"""After threads last came or went."""
FIRST_S = 1.0
"""After the first look: a fault may come soon."""
STARTING_S = 20.0
"""Before the first step: stacks say whether it loads or compiles."""
EARLY = 4
"""So many may follow each other closely, while threads are being started."""
WELL = frozenset({Verdict.INITIALISING, Verdict.RUNNING, Verdict.SLOW})

COLLECTIVE_TIMEOUT_S, DUMP_SHARE = 600.0, 0.5
"""The earliest killer that is known: the default timeout of a collective."""
MOST_OTHERS = 4
"""Other processes of a run of which stacks are taken with those of the main one."""


def other_pids(window: Window) -> tuple[int, ...]:
    """Other Python processes of the run, where causes sit: ranks before their loaders' workers.

    Of both, those that moved least lately come first.
    """
    main, crew = window.main_pid(), leaders(window.tracks)
    ranks = {one.sample.pid for one in crew.values()} if len(crew) > 1 else set()
    alive = [
        one
        for one in window.tracks.processes.values()
        if one.sample.is_python and one.sample.pid != main and one.track.state not in ZOMBIE
    ]
    alive.sort(
        key=lambda one: (one.sample.pid not in ranks, one.track.moved_t or 0.0, one.sample.pid)
    )
    return tuple(one.sample.pid for one in alive[:MOST_OTHERS])


def is_near_a_killer(view: View) -> bool:
    """Has a run of several ranks been silent for half of the time after which it is killed?

    Stacks are taken by then, whatever limit the run has taught: afterwards nobody can.
    """
    ranks = {one.sample.rank for one in view.window.tracks.processes.values()} - {None}
    silent_s = view.age_s() or 0.0
    return len(ranks) > 1 and silent_s >= DUMP_SHARE * COLLECTIVE_TIMEOUT_S


class Census:
    """When to look at the threads again."""

    def __init__(self) -> None:
        self._taken_t: float | None = None
        self._count = 0

    def advance(self, window: Window, verdict: Verdict) -> tuple[StackRequest, ...]:
        """A request soon after the start, while it starts, and when threads have changed."""
        pid, main = window.main_pid(), window.main()
        if pid is None or main is None or not main.sample.is_python or verdict not in WELL:
            return ()
        changed_t = window.tracks.threads_changed_t or window.first_t or window.now_t
        starting = verdict == Verdict.INITIALISING and self._is_old(window.now_t)
        settle_s = SETTLE_S if self._count else FIRST_S
        settled = window.now_t - changed_t >= settle_s
        if not starting and not (settled and self._is_due(window.now_t, changed_t)):
            return ()
        self._taken_t = window.now_t
        self._count += 1
        return (StackRequest(label="census", pid=pid, reason="names of the threads"),)

    def _is_old(self, now_t: float) -> bool:
        return self._taken_t is not None and now_t - self._taken_t >= STARTING_S

    def _is_due(self, now_t: float, changed_t: float) -> bool:
        if self._taken_t is None:
            return True
        pause_s = EVERY_S if self._count >= EARLY else SETTLE_S
        return changed_t > self._taken_t and now_t - self._taken_t >= pause_s
