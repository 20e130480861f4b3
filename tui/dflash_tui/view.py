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

FINAL: Final = frozenset({Verdict.FINISHED, Verdict.CRASHED})
"""Verdicts that do not get old: an end stays an end."""


class Seen(NamedTuple):
    """When the newest frame and the newest snapshot reached this screen; all on this machine."""

    received_t: float | None
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
    received = snapshot.received_t
    if before is not None and received == before.received_t:
        return before._replace(snapshot=snapshot, snapshot_at_s=now_s)
    age = None if received is None else max(wall_s - received, 0.0)
    interval = 1.0
    if before is not None and received is not None and before.received_t is not None:
        step = min(max(received - before.received_t, 0.0), 60.0)
        interval = 0.7 * before.interval_s + 0.3 * step
    return Seen(received, age, now_s, snapshot, now_s, interval)


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
        """The values on the screen are old: no colour for them."""
        return self.state is State.BLIND

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
    if snapshot.views.get("run", "").startswith("none") and snapshot.link.state == "up":
        return State.NO_RUN
    return State(snapshot.verdict.value)
