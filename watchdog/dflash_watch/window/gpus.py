"""The GPUs over time: newest seconds in full, the plot window in buckets."""

from __future__ import annotations

import re
import statistics
from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from dflash_watch.frame import GpuSample
from dflash_watch.window.gpuload import (
    ASLEEP,
    FULL,
    SM_LITTLE,
    SPIN_W,
    SPINNING,
    Look,
    PowerLine,
    Reading,
    read_load,
)

WINDOW_S = 1800.0
BUCKET_S = 30.0
BUCKETS = int(WINDOW_S / BUCKET_S)
RECENT = 60
CONTEXT_BYTES = 2**30
"""A card that holds less has no context of a run: it idles lower then (78 W of 120 on an H200)."""
_PCI = re.compile(r"\b([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\b")
IDLE_SPREAD_W = 15.0
NEW_SHARE = 0.2
"""Weight of a new idle reading."""


@dataclass(slots=True)
class GpuTrack:
    """One GPU; its row stays when it no longer answers."""

    sample: GpuSample
    seen_t: float
    """When it last answered in full."""
    looks: deque[Look] = field(default_factory=lambda: deque(maxlen=RECENT))
    power: dict[int, tuple[float, int]] = field(default_factory=dict)
    """Bucket number -> (sum of watts, count)."""
    idle_watts: float | None = None
    """What it takes with a context and nothing to do, learned from this run."""
    pids: frozenset[int] | None = None
    """Processes that the driver listed there last, while it answered."""
    first_ecc: int | None = None
    """Errors that could not be corrected, when they were first read."""
    most_links: int | None = None
    """NVLinks that were up at best."""
    uuid: str | None = None
    energy: tuple[float, float] | None = None
    """When its energy counter was read last, and what it said in joules."""
    energy_watts: tuple[float, float] | None = None
    """Mean power between the last two of these readings, and the seconds between them."""
    reading: Reading | None = None
    """What it does, over the newest seconds."""
    reading_since_t: float = 0.0
    """Since when it does the same."""

    def take(self, sample: GpuSample, t: float) -> None:
        """Take one reading; a lost GPU keeps its last good one."""
        self.uuid = sample.uuid or self.uuid
        if sample.state != "ok":
            self.sample, self.reading = sample, None
            return
        self.sample, self.seen_t = sample, t
        self._note_health(sample)
        self._note_energy(sample.energy_joules, t)
        util = _mean(sample.utilization_history, sample.utilization_ratio)
        power = _mean(sample.power_history_watts, sample.power_watts)
        if power is None and self.energy_watts is not None:
            power = self.energy_watts[0]  # a card that tells no power may still count its energy
        look = Look(
            t, util, power, sample.sm_ratio, sample.memory_used_bytes, sample.tensor_ratio,
            sample.dram_ratio, sample.sm_clock_mhz, sample.clock_reasons,
            _ends(sample.utilization_history), _ends(sample.power_history_watts),
        )  # fmt: skip
        self.looks.append(look)
        self._learn_idle(look)
        self._read(t)
        if power is not None:
            number = int(t // BUCKET_S)
            total, count = self.power.get(number, (0.0, 0))
            self.power[number] = (total + power, count + 1)
            if len(self.power) > BUCKETS + 2:
                self.power.pop(min(self.power))

    def _note_health(self, sample: GpuSample) -> None:
        if sample.processes is not None:
            self.pids = frozenset(one.pid for one in sample.processes)
        if self.first_ecc is None:
            self.first_ecc = sample.ecc_uncorrected
        if sample.nvlinks_active is not None:
            self.most_links = max(self.most_links or 0, sample.nvlinks_active)

    def _note_energy(self, joules: float | None, t: float) -> None:
        """The counter cannot be missed between two looks, unlike a sample of power."""
        if joules is None:
            return
        if self.energy is not None and joules >= self.energy[1] and t > self.energy[0]:
            span_s = t - self.energy[0]
            self.energy_watts = ((joules - self.energy[1]) / span_s, span_s)
        else:
            self.energy_watts = None  # the first, or counted anew since the driver was loaded
        self.energy = (t, joules)

    def line(self) -> PowerLine:
        """Where it idles and where it ends."""
        return PowerLine(self.idle_watts, self.sample.power_limit_watts)

    def _learn_idle(self, look: Look) -> None:
        if look.util is None or look.power is None or (look.memory or 0) < CONTEXT_BYTES:
            return
        highest = look.utils[1] if look.utils is not None else look.util
        low, high = look.powers or (look.power, look.power)
        if highest >= ASLEEP or high - low > IDLE_SPREAD_W:
            return
        known = self.idle_watts if self.idle_watts is not None else look.power
        self.idle_watts = (1 - NEW_SHARE) * known + NEW_SHARE * look.power

    def _read(self, t: float) -> None:
        before = self.reading
        self.reading = read_load(self.looks, self.line())
        if self.reading is None or before is None or before.load != self.reading.load:
            self.reading_since_t = t

    @property
    def spins(self) -> bool:
        """Does it run kernels that do nothing?"""
        return self.reading is not None and self.reading.load in SPINNING

    @property
    def seems_to_spin(self) -> bool:
        """By two looks and the driver's history before them; for a reading they are too few."""
        looks = self.looks
        full = any(look.utils is not None and look.utils[0] >= FULL for look in looks)
        powers = [look.power for look in looks if look.power is not None]
        sms = [look.sm for look in looks if look.sm is not None]
        is_low = bool(powers) and self.line().is_near_idle(max(powers), SPIN_W)
        return full and is_low and max(sms, default=0.0) < SM_LITTLE

    def energy_text(self, since_t: float) -> str:
        """What the energy counter says, when the whole of its span lies after that moment."""
        if self.energy is None or self.energy_watts is None:
            return ""
        watts, span_s = self.energy_watts
        if self.energy[0] - span_s < since_t:
            return ""
        return f", {watts:.0f} W by its energy counter over {span_s:.0f} s"

    def power_history(self, now_t: float) -> tuple[float | None, ...]:
        """Mean watts per bucket of the plot window, oldest first; None is a gap."""
        last = int(now_t // BUCKET_S)
        found = (self.power.get(number) for number in range(last - BUCKETS + 1, last + 1))
        return tuple(None if one is None else round(one[0] / one[1], 1) for one in found)

    def recent(self, since_t: float) -> list[Look]:
        """Readings since then."""
        return [look for look in self.looks if look.t >= since_t]


def _addresses(text: str) -> Iterator[tuple[int, ...]]:
    """Domain, bus and device of each address; a line of the bus names the port first."""
    for found in _PCI.finditer(text):
        yield tuple(int(part, 16) for part in found.groups())


def _ends(history: tuple[float, ...]) -> tuple[float, float] | None:
    return (min(history), max(history)) if history else None


def _mean(history: tuple[float, ...], newest: float | None) -> float | None:
    return statistics.fmean(history) if history else newest


class Gpus:
    """All GPUs that were ever seen in this run."""

    def __init__(self) -> None:
        self.tracks: dict[int, GpuTrack] = {}
        self.vanished: dict[str, GpuTrack] = {}
        """UUID -> the card that the driver does not list any more."""

    def take(self, samples: tuple[GpuSample, ...] | None, t: float) -> None:
        """Take the GPU part of a frame; a card is the same as long as its UUID is."""
        if samples:
            self._renumber(samples)
        for sample in samples or ():
            track = self.tracks.get(sample.index)
            if track is None:
                track = self.tracks[sample.index] = GpuTrack(sample, t)
            track.take(sample, t)

    def _renumber(self, samples: tuple[GpuSample, ...]) -> None:
        """When the driver was opened anew after a card had gone, those behind it move up."""
        now = {one.uuid: one.index for one in samples if one.uuid is not None}
        unnamed = {one.index for one in samples if one.uuid is None}
        before, self.tracks = self.tracks, {}
        for uuid in self.vanished.keys() & now.keys():
            self.tracks[now[uuid]] = self.vanished.pop(uuid)
        for index, track in before.items():
            if track.uuid is None or index in unnamed:
                self.tracks.setdefault(index, track)
            elif track.uuid in now:
                self.tracks[now[track.uuid]] = track
            else:
                self.vanished[track.uuid] = track

    def named_in(self, line: str) -> int | None:
        """The card whose bus address a kernel line tells; None when it tells none that is known."""
        told = set(_addresses(line))
        for index, track in self.tracks.items():
            if told.intersection(_addresses(track.sample.pci or "")):
                return index
        return None

    def used(self, pids: Collection[int]) -> dict[int, GpuTrack]:
        """Cards on which the driver lists one of these processes; all when it lists none."""
        known = frozenset(pids)
        own = {one: card for one, card in self.tracks.items() if card.pids and card.pids & known}
        return own or self.tracks

    def is_used(self, index: int, pids: Collection[int]) -> bool:
        """Does the run use that card? Yes too when nobody can tell whose any card is."""
        return index in self.used(pids)

    @property
    def tells_users(self) -> bool:
        """Has the driver said for each card which processes use it?"""
        return bool(self.tracks) and all(one.pids is not None for one in self.tracks.values())

    def activity(self, since_t: float, pids: Collection[int] = ()) -> float | None:
        """Largest share of SM time in use; None where the driver does not say.

        Utilisation does not count: a waiting collective and a spin kernel read 100 %. Nor do
        the SMs of a card that spins, nor cards that only others use.

        Args:
            since_t: newest looks that count.
            pids: processes of the run.
        """
        seen = [
            0.0 if one.spins else look.sm
            for one in self.used(pids).values()
            for look in one.recent(since_t)
        ]
        known = [ratio for ratio in seen if ratio is not None]
        return max(known) if known else None
