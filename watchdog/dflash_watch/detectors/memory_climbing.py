"""Memory of the run rises evenly, long after its first step, and will not last.

Sees:       memory of the run's own processes without mapped files, and memory in use on its GPUs.
Means:      something is kept that should be let go: a list of losses with their graphs, a cache
            without a bound, a reader's buffers.
Wrong when: a cache that is meant to fill; it levels off, and then this is over.
Source:     docs/frames.md, ProcessSample and GpuSample.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dflash_watch.detectors.base import Answer, Detector, Example, View, symptom
from dflash_watch.detectors.examples import example, frames, log, process
from dflash_watch.frame import HostSample
from dflash_watch.model import Severity, Source
from dflash_watch.roles import cards_of_run
from dflash_watch.units import data_size, duration
from dflash_watch.window.memory import Climb, Level


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Limits."""

    settle_s: float = 15.0
    """After the first step caches and pools fill."""
    over_s: tuple[float, ...] = (45.0, 300.0, 1800.0)
    """Looked at: a fast leak in the first, a slow one in the last."""
    least_bytes: int = 256 * 2**20
    """Growth below this does not matter yet."""
    least_ratio: float = 0.04
    """Nor growth below this share of what was held."""
    lasts: float = 20.0
    """Memory that lasts longer than so many times the span is not running out."""
    unknown_ratio: float = 0.5
    """Growth that counts where nobody knows how much is left."""


def detect(view: View, params: Params) -> Iterator[Answer]:
    """The host, then each GPU."""
    first_t = view.progress.first_step_t
    if first_t is None or view.progress.phase is not None:
        return
    since_t = max(first_t, view.progress.quiet_end_t or 0.0) + params.settle_s
    memory = view.window.memory
    climb = _climb(memory.host, since_t, params, _room(view))
    if climb is not None:
        yield _symptom("run", "host memory", climb, _room(view))
    pids = view.window.tracks.pids()
    for index, track in cards_of_run(view.window, view.options).items():
        level, card = memory.gpus.get(index), track.sample
        if level is None or (track.pids or frozenset()) - pids:
            continue  # of a shared card nobody knows whose memory climbs
        room = None
        if card.memory_total_bytes is not None and card.memory_used_bytes is not None:
            room = card.memory_total_bytes - card.memory_used_bytes
        climb = _climb(level, since_t, params, room)
        if climb is not None:
            yield _symptom(f"gpu{index}", "device memory", climb, room)


def _room(view: View) -> int | None:
    """What the host, or the run's own limit, has left."""
    host = view.window.host
    if host is None:
        return None
    left = [host.memory_available_bytes] if host.memory_available_bytes is not None else []
    if host.cgroup_memory_limit_bytes and host.cgroup_memory_bytes is not None:
        left.append(host.cgroup_memory_limit_bytes - host.cgroup_memory_bytes)
    return max(min(left), 0) if left else None


def _climb(level: Level, since_t: float, params: Params, room: int | None) -> Climb | None:
    for over_s in params.over_s:
        climb = level.climb(since_t, over_s)
        if climb is None:
            continue
        grown = climb.to_bytes - climb.from_bytes
        if grown < max(params.least_bytes, params.least_ratio * climb.from_bytes):
            continue
        if room is None:
            matters = grown >= params.unknown_ratio * climb.from_bytes
        else:
            matters = room / climb.bytes_per_s <= params.lasts * over_s
        if matters:
            return climb
    return None


def _symptom(subject: str, what: str, climb: Climb, room: int | None) -> Answer:
    text = f"{what} rose evenly from {data_size(climb.from_bytes)} to {data_size(climb.to_bytes)}"
    text += f" in {duration(climb.over_s)}, {data_size(60 * climb.bytes_per_s)} a minute"
    if room is not None:
        text += f"; what is left lasts {duration(room / climb.bytes_per_s)}"
    source = Source.HOST if subject == "run" else Source.GPU
    return symptom(subject, Severity.WARNING, climb.begin_t, text, source)


def _run(*, levels_off: bool) -> Example:
    """Ninety seconds of steps; memory rises to the end, or for the first half minute."""

    def processes(i: int) -> tuple[object, ...]:
        grown = min(i, 30) if levels_off else i
        return (process(i, anon_bytes=2**30 + grown * 50 * 2**20),)

    host = HostSample(memory_available_bytes=8 * 2**30)
    told = frames(90, processes=processes, logs=lambda i: log(f"step {i}/900\n"), host=host)
    return example(told, subject=None if levels_off else "run")


def firing() -> Example:
    """Fifty MiB a second, to the end."""
    return _run(levels_off=False)


def clear() -> Example:
    """The same, for the first half minute."""
    return _run(levels_off=True)


DETECTOR = Detector(detect=detect, params=Params(), firing=firing, clear=clear)
