"""One moment of the screen: the newest snapshot, how old it is, and what may be claimed from it.

The engine judges the run; the dashboard only adds the clock. It never shows a verdict about now
from old data: whatever the snapshot says, old data is BLIND, with the last known verdict named.
"""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo
from typing import Final, NamedTuple

from dflash_watch.model import Snapshot, Verdict

from dflash_tui.theme import State

STALE_AFTER_S: Final = 10.0
"""Data older than this, and than three usual intervals, is not "now". The engine says so earlier;
this is for the case that the engine itself stopped."""

FRESH_S: Final = 5.0
"""Up to this age a blind verdict is about fresh data: seen, and not enough to judge by."""

FINAL: Final = frozenset({Verdict.FINISHED, Verdict.CRASHED})
"""Verdicts that do not get old: an end stays an end."""


class Seen(NamedTuple):
    """When the newest frame and the newest snapshot reached this screen; all on this machine."""

    frame: tuple[float | None, float | None]
    """`received_t` and `data_t` of the newest frame: another frame has another pair."""
    age_then_s: float | None
    """Age of the frame when it was first seen here."""
    frame_at_s: float
    """Monotonic moment of that."""
    snapshot: Snapshot
    snapshot_at_s: float
    interval_s: float = 1.0
    """Usual time between two frames."""


def see(before: Seen | None, snapshot: Snapshot, wall_s: float, now_s: float) -> Seen:
    """Takes note of the newest snapshot.

    Ages count on the monotonic clock from here on, so that a step of the wall clock changes none.
    """
    if before is not None and before.snapshot is snapshot:
        return before
    frame = (snapshot.received_t, snapshot.data_t)
    if before is not None and frame == before.frame:
        return before._replace(snapshot=snapshot, snapshot_at_s=now_s)
    interval = 1.0
    if before is not None and before.age_then_s is not None:
        step = min(max(now_s - before.frame_at_s, 0.0), 60.0)
        interval = 0.7 * before.interval_s + 0.3 * step
    return Seen(frame, _age_now(frame, wall_s), now_s, snapshot, now_s, interval)


def _age_now(frame: tuple[float | None, float | None], wall_s: float) -> float | None:
    """Age of a frame that is seen for the first time; without its arrival it came just now."""
    received_t, data_t = frame
    if received_t is not None:
        return max(wall_s - received_t, 0.0)
    return None if data_t is None else 0.0


class View(NamedTuple):
    """What the panels draw from."""

    snapshot: Snapshot | None
    state: State
    last_known: Verdict | None
    """While blind: what held before."""
    data_age_s: float | None
    held_s: float | None
    """For how long the state has held."""
    elapsed_s: float
    """Since the snapshot came: added to every age in it."""
    wall_s: float
    zone: tzinfo

    @property
    def frozen(self) -> bool:
        """Blind because nothing comes: the values are old, no colour for them."""
        if self.state is not State.BLIND or self.snapshot is None:
            return False
        old = self.data_age_s is None or self.data_age_s > FRESH_S
        return old or self.snapshot.link.state != "up"

    def clock(self, t: float | None) -> str:
        """`12:41:07` in the reader's zone; dashes when not known or not a moment."""
        if t is None or not 0 <= t < 4e9:
            return "--:--:--"
        return datetime.fromtimestamp(t, self.zone).strftime("%H:%M:%S")


def build_view(seen: Seen | None, wall_s: float, now_s: float, zone: tzinfo = UTC) -> View:
    """The view at this moment.

    Args:
        seen: newest snapshot and when it came; None before the first.
        wall_s: this machine's wall clock.
        now_s: this machine's monotonic clock.
        zone: of the moments drawn.
    """
    if seen is None:
        return View(None, State.CONNECTING, None, None, None, 0.0, wall_s, zone)
    snapshot = seen.snapshot
    age = None
    if seen.age_then_s is not None:
        age = seen.age_then_s + max(now_s - seen.frame_at_s, 0.0)
    elapsed = max(now_s - seen.snapshot_at_s, 0.0)
    state = _state(snapshot, age, max(STALE_AFTER_S, 3 * seen.interval_s))
    held: float | None = max(snapshot.t - snapshot.since_t, 0.0) + elapsed
    last = snapshot.last_verdict
    if state is State.BLIND and snapshot.verdict is not Verdict.BLIND:
        held, last = age, snapshot.verdict
    return View(snapshot, state, last, age, held, elapsed, wall_s, zone)


def _state(snapshot: Snapshot, age_s: float | None, stale_after_s: float) -> State:
    """The verdict as far as it may be shown now."""
    if snapshot.verdict in FINAL:
        return State(snapshot.verdict.value)
    if snapshot.data_t is None and snapshot.link.state == "connecting":
        return State.CONNECTING
    if age_s is not None and age_s > stale_after_s:
        return State.BLIND
    return State.NO_RUN if _sees_no_run(snapshot) else State(snapshot.verdict.value)


def _sees_no_run(snapshot: Snapshot) -> bool:
    """Connected, frames come, and they are about no process."""
    comes = snapshot.link.state == "up" and snapshot.data_t is not None
    return comes and snapshot.failure == "no-run" and snapshot.verdict is Verdict.BLIND
