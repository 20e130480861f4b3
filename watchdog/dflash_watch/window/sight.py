"""How well the run can be seen: the link, missing frames, and spans nobody saw."""

from __future__ import annotations

import statistics
from collections import deque

from dflash_watch.frame import Frame, LinkChange, Tick

FIRST_GAP_S = 30.0
"""Distance of frames that counts as unseen while the pace is not known."""
LEAST_GAP_S = 5.0
PACES = 3.5
"""Frames that far apart, in paces, were not seen in between."""


class Sight:
    """The link and the frames' pace, on both clocks without comparing them."""

    def __init__(self) -> None:
        self.link = LinkChange(t=0.0, state="connecting")
        self.link_since_t: float | None = None
        """When the link changed, on the watched host's clock as far as known."""
        self.unseen: deque[tuple[float, float]] = deque(maxlen=20)
        """Spans (begin, end) on the watched host's clock in which no frame came."""
        self._paces: deque[float] = deque(maxlen=10)
        self._last: Frame | None = None
        self._watcher_t: float | None = None
        """The watcher's clock at its first word after the newest frame."""
        self.silent_s = 0.0
        """Seconds since the newest frame, at least."""
        self.lost_watcher_t: float | None = None
        self.lost_reason: str | None = None
        self.lost_s = 0.0
        """For how long the link has been lost, attempts to connect again included."""

    @property
    def pace_s(self) -> float | None:
        """Usual distance between frames; None before two have come."""
        return statistics.median(self._paces) if self._paces else None

    def take_frame(self, frame: Frame) -> None:
        """A frame came: the view is back."""
        if self._last is not None:
            gap_s = frame.boot_s - self._last.boot_s
            pace = self.pace_s
            limit = FIRST_GAP_S if pace is None else max(LEAST_GAP_S, PACES * pace)
            if gap_s > limit:
                self.unseen.append((self._last.t, frame.t))
            elif gap_s > 0:
                self._paces.append(gap_s)
        self._last = frame
        self._watcher_t = None
        self.silent_s = 0.0
        if self.link.state != "up":
            self.link, self.link_since_t = LinkChange(t=self.link.t, state="up"), frame.t
        self.lost_watcher_t, self.lost_s = None, 0.0

    def take_word(self, record: LinkChange | Tick, data_t: float | None) -> None:
        """The watcher's own side said something; its clock only gives differences."""
        if self._watcher_t is None:
            self._watcher_t = record.t
        self.silent_s = max(record.t - self._watcher_t, 0.0) if self._last is not None else 0.0
        if isinstance(record, LinkChange):
            now_t = record.t if data_t is None else data_t + self.silent_s
            if record.state != self.link.state:
                self.link_since_t = now_t
            self.link = record
            if record.state == "lost":
                self.lost_watcher_t = self.lost_watcher_t or record.t
                self.lost_reason = record.reason or self.lost_reason
        if self.lost_watcher_t is not None:
            self.lost_s = max(record.t - self.lost_watcher_t, 0.0)

    def seen_s(self, from_t: float, to_t: float) -> float:
        """Seconds between two moments, spans that nobody saw left out."""
        hidden = sum(max(min(end, to_t) - max(begin, from_t), 0.0) for begin, end in self.unseen)
        return max(to_t - from_t - hidden, 0.0)
