"""How far limits of the machine or the container hold the run back: processor time, memory."""

from __future__ import annotations

from collections import deque

from dflash_watch.frame import ContainerSample, HostSample

KEPT = 120
Series = deque[tuple[float, float]]


class HeldBack:
    """Figures of the newest minutes by CLOCK_BOOTTIME; the container's own view and its host's."""

    def __init__(self) -> None:
        self._inside: Series = deque(maxlen=KEPT)
        self._outside: Series = deque(maxlen=KEPT)
        self._memory: Series = deque(maxlen=KEPT)

    def take_frame(self, boot_s: float, host: HostSample | None) -> None:
        """Take what was seen from inside."""
        if host is not None and host.throttled_s is not None:
            self._inside.append((boot_s, host.throttled_s))

    def take_container(self, boot_s: float, container: ContainerSample | None) -> None:
        """Take what the host sees of the container."""
        if container is None:
            return
        if container.throttled_s is not None:
            self._outside.append((boot_s, container.throttled_s))
        if container.memory_stall_ratio is not None:
            self._memory.append((boot_s, container.memory_stall_ratio))

    def throttled(self, now_s: float, over_s: float) -> float | None:
        """Seconds in each second for which the CPU limit held it back, all processors together.

        None where nobody tells, or not for so long.
        """
        rates = [_rate(series, now_s, over_s) for series in (self._inside, self._outside)]
        known = [rate for rate in rates if rate is not None]
        return max(known) if known else None

    def memory_stall(self, now_s: float, over_s: float) -> float | None:
        """Least share of time in which something waited for memory, over so long."""
        seen = [(at, ratio) for at, ratio in self._memory if at >= now_s - over_s]
        if not seen or now_s - seen[0][0] < 0.7 * over_s:
            return None
        return min(ratio for _, ratio in seen)


def _rate(series: Series, now_s: float, over_s: float) -> float | None:
    seen = [one for one in series if one[0] >= now_s - over_s]
    if not seen or now_s - seen[0][0] < 0.7 * over_s or seen[-1][0] <= seen[0][0]:
        return None
    rate = (seen[-1][1] - seen[0][1]) / (seen[-1][0] - seen[0][0])
    return rate if rate >= 0 else None  # another counter took its place
