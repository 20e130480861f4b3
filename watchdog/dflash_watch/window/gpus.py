"""The GPUs over time: newest seconds in full, the plot window in buckets."""

from __future__ import annotations

import statistics
from collections import deque
from dataclasses import dataclass, field

from dflash_watch.frame import GpuSample

WINDOW_S = 1800.0
BUCKET_S = 30.0
BUCKETS = int(WINDOW_S / BUCKET_S)
RECENT = 60


@dataclass(slots=True)
class Look:
    """One frame's reading of one GPU."""

    t: float
    util: float | None
    power: float | None
    sm: float | None
    memory: int | None


@dataclass(slots=True)
class GpuTrack:
    """One GPU; its row stays when it no longer answers."""

    sample: GpuSample
    seen_t: float
    """When it last answered in full."""
    looks: deque[Look] = field(default_factory=lambda: deque(maxlen=RECENT))
    power: dict[int, tuple[float, int]] = field(default_factory=dict)
    """Bucket number -> (sum of watts, count)."""

    def take(self, sample: GpuSample, t: float) -> None:
        """Take one reading; a lost GPU keeps its last good one."""
        if sample.state != "ok":
            self.sample = sample
            return
        self.sample, self.seen_t = sample, t
        util = _mean(sample.utilization_history, sample.utilization_ratio)
        power = _mean(sample.power_history_watts, sample.power_watts)
        self.looks.append(Look(t, util, power, sample.sm_ratio, sample.memory_used_bytes))
        if power is not None:
            number = int(t // BUCKET_S)
            total, count = self.power.get(number, (0.0, 0))
            self.power[number] = (total + power, count + 1)
            if len(self.power) > BUCKETS + 2:
                self.power.pop(min(self.power))

    def power_history(self, now_t: float) -> tuple[float | None, ...]:
        """Mean watts per bucket of the plot window, oldest first; None is a gap."""
        last = int(now_t // BUCKET_S)
        found = (self.power.get(number) for number in range(last - BUCKETS + 1, last + 1))
        return tuple(None if one is None else round(one[0] / one[1], 1) for one in found)

    def recent(self, since_t: float) -> list[Look]:
        """Readings since then."""
        return [look for look in self.looks if look.t >= since_t]


def _mean(history: tuple[float, ...], newest: float | None) -> float | None:
    return statistics.fmean(history) if history else newest


class Gpus:
    """All GPUs that were ever seen in this run."""

    def __init__(self) -> None:
        self.tracks: dict[int, GpuTrack] = {}

    def take(self, samples: tuple[GpuSample, ...] | None, t: float) -> None:
        """Take the GPU part of a frame."""
        for sample in samples or ():
            track = self.tracks.get(sample.index)
            if track is None:
                track = self.tracks[sample.index] = GpuTrack(sample, t)
            track.take(sample, t)

    def activity(self, since_t: float) -> float | None:
        """Largest share of SM time in use; None where the driver does not say.

        Utilisation does not count: a waiting collective and a spin kernel read 100 %.
        """
        seen = [look.sm for one in self.tracks.values() for look in one.recent(since_t)]
        known = [ratio for ratio in seen if ratio is not None]
        return max(known) if known else None
