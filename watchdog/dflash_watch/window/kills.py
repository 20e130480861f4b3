"""Out-of-memory counters around the end of a run: what rose hours earlier explains nothing."""

from __future__ import annotations

from collections import deque

from dflash_watch.frame import HostSample

AROUND_S = 5.0
"""A kill shows in the counters so long before or after the process is seen to be gone."""


class Kills:
    """The counters of the last seconds in which the run was there, and of the first after."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, HostSample]] = deque()
        self._gone_t: float | None = None
        self._counted: int | None = None
        self.rise_t: float | None = None
        """When the counter of the run's own cgroup last rose."""
        self._outside: int | None = None
        self._outside_rise_t: float | None = None

    def take(self, t: float, host: HostSample | None, *, is_gone: bool) -> None:
        """Remember a look, unless the end is too long ago for it to say anything."""
        self._note_rise(t, host)
        if not is_gone:
            self._gone_t = None
        elif self._gone_t is None:
            self._gone_t = t
        if host is None or (self._gone_t is not None and t - self._gone_t > AROUND_S):
            return
        self._seen.append((t, host))
        while self._gone_t is None and len(self._seen) > 1 and self._seen[1][0] < t - AROUND_S:
            self._seen.popleft()

    def take_container(self, t: float, oom_kills: int | None) -> None:
        """Take the container's counter as its host reads it: another source, counted apart."""
        if oom_kills is None:
            return
        if self._outside is not None and oom_kills > self._outside:
            self.rise_t = self._outside_rise_t = t
        self._outside = oom_kills

    def _note_rise(self, t: float, host: HostSample | None) -> None:
        now = host.oom_kills if host is not None else None
        if now is not None:
            if self._counted is not None and now > self._counted:
                self.rise_t = t
            self._counted = now

    def in_cgroup(self) -> bool:
        """Did the counter of the run's own cgroup rise?"""
        rise_t, gone_t = self._outside_rise_t, self._gone_t
        if rise_t is not None and gone_t is not None and abs(rise_t - gone_t) <= AROUND_S:
            return True
        return _rose([host.oom_kills for _, host in self._seen])

    def on_machine(self) -> bool:
        """Did the machine's counter rise? It may have been another container's process."""
        return _rose([host.machine_oom_kills for _, host in self._seen])


def _rose(values: list[int | None]) -> bool:
    known = [value for value in values if value is not None]
    return bool(known) and known[-1] > known[0]
