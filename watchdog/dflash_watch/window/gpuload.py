"""What one GPU does, read over seconds: work, or one of the ways to look busy without working.

`utilization.gpu` says that some kernel ran, not that it did anything: a spin kernel and a waiting
collective read 100 %, and so does a card that rests half of the time. Where the driver has GPM
(Hopper and newer), the shares of SMs, tensor cores and memory decide; elsewhere power does, against
the line the card idles at. Pure; never by one sample. Bounds: an H200, tests/recorded/gpu.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from dflash_watch.units import percent

OVER_S, LEAST_S, LEAST_LOOKS = 6.0, 4.0, 5
"""A reading is over so long; shorter, or by fewer looks, there is none."""
FULL, BUSY, RESTS, ASLEEP = 0.95, 0.8, 0.2, 0.03
"""Shares of the time in which some kernel ran."""
SM_NOTHING, SM_LITTLE, SM_SPIN, SM_MOST = 0.01, 0.05, 0.6, 0.7
"""One spinning thread takes 0.008 of the SMs, a waiting all-reduce 0.18, real work 0.9."""
UNUSED = 0.01
"""Of tensor cores and memory: nobody computes, nothing is moved."""
STEADY = 0.01
"""A spinning kernel takes the same share of the SMs at each look; work never does."""
CLEARS = 0.02
"""Memory traffic of a driver that clears pages for new allocations: 0.09 was seen."""
TENSOR_SHARE, MEMORY_BOUND = 0.05, 0.5
MOVES_BYTES = 64 * 2**20
"""Memory in use that differs by so much between two looks."""
SPIN_W, ALLOCATOR_W, RAISED_W = 0.03, 0.12, 0.3
"""Above the idle line, shares of the way to the limit: of 120..700 W 122 spun, 153 allocated."""
UNLEARNED = 0.25
"""Of the power limit, while the card was never seen idle: spin was 0.17, idle too."""


class Load(StrEnum):
    """What a GPU does."""

    IDLE = "idle"
    WORK = "work"
    MEMORY = "memory-bound"
    HOST = "host-bound"
    SPIN = "spin"
    COLLECTIVE = "collective-spin"
    HALF = "half-idle"
    ALLOCATOR = "allocator"


SPINNING = frozenset({Load.SPIN, Load.COLLECTIVE})
WORDS = {
    Load.IDLE: "idle",
    Load.WORK: "works",
    Load.MEMORY: "works, bound by memory",
    Load.HOST: "waits for the host between small kernels",
    Load.SPIN: "spins: a kernel runs and does nothing",
    Load.COLLECTIVE: "spins in a collective: waits for a peer",
    Load.HALF: "works and rests in turns",
    Load.ALLOCATOR: "busy with its allocator, not with work",
}


@dataclass(slots=True)
class Look:
    """One frame's reading of one GPU; None is not known, ratios are 0..1, power in watts."""

    t: float
    util: float | None = None
    power: float | None = None
    sm: float | None = None
    memory: int | None = None
    tensor: float | None = None
    dram: float | None = None
    clock: int | None = None
    reasons: int | None = None
    utils: tuple[float, float] | None = None
    """Lowest and highest of the driver's own history since the look before."""
    powers: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """What it does, and the figures that say so."""

    load: Load
    text: str


@dataclass(frozen=True, slots=True)
class PowerLine:
    """Where a card idles and where it ends, watts."""

    idle: float | None
    limit: float | None

    def raised(self, watts: float) -> float | None:
        """Share of the way from idle to the limit; None while the idle line is not known."""
        if self.idle is None or self.limit is None or self.limit <= self.idle:
            return None
        return (watts - self.idle) / (self.limit - self.idle)

    def is_near_idle(self, watts: float, share: float) -> bool:
        """Within a share of the idle line, or under what no work takes."""
        raised = self.raised(watts)
        if raised is not None:
            return raised <= share
        return self.limit is not None and watts <= UNLEARNED * self.limit


def read_load(looks: Iterable[Look], line: PowerLine) -> Reading | None:
    """The reading of the newest seconds; None when they are too few or do not tell."""
    newest = list(looks)
    if newest:
        newest = [look for look in newest if look.t > newest[-1].t - OVER_S]
    if len(newest) < LEAST_LOOKS or newest[-1].t - newest[0].t < LEAST_S:
        return None
    utils = _known(look.util for look in newest)
    sms = _known(look.sm for look in newest)
    if len(utils) < LEAST_LOOKS:
        return None
    load = _by_sm(newest, utils, sms, line) if len(sms) >= LEAST_LOOKS else None
    if len(sms) < LEAST_LOOKS:
        load = _by_power(newest, utils, line)
    return None if load is None else Reading(load, _figures(newest, utils, sms, line))


def _by_sm(
    looks: Sequence[Look], utils: list[float], sms: list[float], line: PowerLine
) -> Load | None:
    tensors, drams = _known(look.tensor for look in looks), _known(look.dram for look in looks)
    tensor, dram = max(tensors, default=0.0), max(drams, default=0.0)
    sm = statistics.fmean(sms)
    if max(sms) < SM_NOTHING and max(utils) < ASLEEP:
        return Load.IDLE
    if min(utils) >= FULL and max(sms) < SM_LITTLE:
        if min(drams, default=0.0) >= CLEARS:
            return Load.ALLOCATOR if _moves(looks) else None
        return Load.SPIN if dram < UNUSED else None
    is_steady = max(sms) - min(sms) <= STEADY
    if min(utils) >= FULL and max(sms) < SM_SPIN and is_steady and max(tensor, dram) < UNUSED:
        return Load.COLLECTIVE
    if SM_LITTLE <= sm < SM_MOST and _swings(looks, line):
        return Load.HALF
    if sm < SM_LITTLE:
        return Load.HOST if statistics.fmean(utils) >= ASLEEP and max(utils) < FULL else None
    mean_tensor = statistics.fmean(tensors) if tensors else 0.0
    if drams and statistics.fmean(drams) >= MEMORY_BOUND and mean_tensor < TENSOR_SHARE:
        return Load.MEMORY
    return Load.WORK


def _by_power(looks: Sequence[Look], utils: list[float], line: PowerLine) -> Load | None:
    if max(utils) < ASLEEP:
        return Load.IDLE
    powers = _known(look.power for look in looks)
    if len(powers) < LEAST_LOOKS or line.limit is None:
        return None
    watts = statistics.fmean(powers)
    if min(utils) >= FULL and line.is_near_idle(watts, ALLOCATOR_W) and _moves(looks):
        return Load.ALLOCATOR
    if min(utils) >= FULL and line.is_near_idle(max(powers), SPIN_W):
        return Load.SPIN  # of a kernel or of a collective: power does not tell them apart
    if _swings(looks, line):
        return Load.HALF
    if max(utils) < BUSY and line.is_near_idle(watts, ALLOCATOR_W):
        return Load.HOST
    raised = line.raised(watts)
    return Load.WORK if raised is None or raised >= ALLOCATOR_W else None


def _swings(looks: Sequence[Look], line: PowerLine) -> bool:
    """Up and down, by the driver's own histories; without any, from look to look."""
    used = [look.utils for look in looks if look.utils is not None]
    drawn = [look.powers for look in looks if look.powers is not None]
    if used and 2 * sum(low <= RESTS and high >= BUSY for low, high in used) > len(used):
        return True
    if len(drawn) >= 2 and 2 * sum(_spans(one, line) for one in drawn) > len(drawn):
        return True
    if used or drawn:
        return False
    ends = [look.util for look in looks if look.util is not None]
    sides = [value >= BUSY for value in ends if value >= BUSY or value <= RESTS]
    return sum(a != b for a, b in itertools.pairwise(sides)) >= 3


def _spans(powers: tuple[float, float], line: PowerLine) -> bool:
    low, high = line.raised(powers[0]), line.raised(powers[1])
    return low is not None and high is not None and low <= ALLOCATOR_W and high >= RAISED_W


def _moves(looks: Sequence[Look]) -> bool:
    """Memory in use changes from look to look."""
    held = [look.memory for look in looks if look.memory is not None]
    return sum(abs(b - a) >= MOVES_BYTES for a, b in itertools.pairwise(held)) >= 2


def _figures(looks: Sequence[Look], utils: list[float], sms: list[float], line: PowerLine) -> str:
    parts = [f"{percent(statistics.fmean(utils))} in use"]
    powers = _known(look.power for look in looks)
    if powers:
        idle = f" (idles at {line.idle:.0f} W)" if line.idle is not None else ""
        parts.append(f"{statistics.fmean(powers):.0f} W{idle}")
    if sms:
        parts.append(f"SM {percent(statistics.fmean(sms))}")
    return ", ".join(parts)


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]
