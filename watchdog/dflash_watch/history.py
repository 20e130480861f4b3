"""What was there before anybody looked teaches how long this run's steps take.

The first look brings the end of the log and of the events. Their own moments tell the gaps between
steps; without any, the age of the process bounds them. Pure; a gap is never guessed too short.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator

from dflash_watch.phases import BUDGETS_S
from dflash_watch.progress import StepGap
from dflash_watch.readers.facts import StepSeen
from dflash_watch.readers.stamps import between_s, read_stamp
from dflash_watch.window import Window

LEAST_STAMPS = 4
LEAST_LIFE_S = 30.0
"""A younger process has shown a burst at best."""
SLOWEST = 3.0
"""Within an interval that holds several steps: the slowest, in mean steps."""


def gaps_before(window: Window) -> tuple[StepGap, ...]:
    """Gaps between the steps that the newest record tells of; for the first that has any."""
    if window.tells_steps:
        return tuple(_told(window))
    steps = _steps(window)
    stamped = tuple(_stamped(steps))
    if len(stamped) >= LEAST_STAMPS:
        return stamped
    return tuple(_by_age(window, steps))


def _told(window: Window) -> Iterator[StepGap]:
    """Gaps between throughput and heartbeat events, those with a finite phase in them apart."""
    before: tuple[float, int] | None = None
    phase = "training"
    for event in window.fresh_events:
        kind, t, step = event.get("kind"), event.get("t"), event.get("step")
        if kind == "phase" and event.get("name") in BUDGETS_S:
            phase = str(event.get("name"))
        if kind not in {"throughput", "heartbeat"} or not isinstance(t, int | float):
            continue
        if not isinstance(step, int) or (before is not None and step == before[1]):
            continue
        if before is not None and step > before[1] and t > before[0]:
            yield _gap(phase, t - before[0], step - before[1], has_beats=bool(window.told.workers))
        before, phase = (float(t), step), "training"


def _gap(phase: str, over_s: float, steps: int, *, has_beats: bool) -> StepGap:
    """Silence counts from the last step where beats tell it, else from the last event."""
    longest_s = min(over_s, SLOWEST * over_s / steps) if has_beats else over_s
    return StepGap(phase=phase, longest_s=longest_s, steps=steps, over_s=over_s)


def _steps(window: Window) -> list[StepSeen]:
    """Steps of the counter that the log shows most, since it last began anew."""
    seen = [
        fact
        for fact in window.logs.fresh
        if isinstance(fact, StepSeen) and fact.backlog and fact.phase == "training"
    ]
    if not seen:
        return []
    (series, _), *_ = Counter(fact.series for fact in seen).most_common(1)
    mine = [fact for fact in seen if fact.series == series]
    begun = max((index for index, fact in enumerate(mine) if fact.restarted), default=0)
    return mine[begun:]


def _stamped(steps: list[StepSeen]) -> Iterator[StepGap]:
    """Gaps that the lines state themselves."""
    stamps = [read_stamp(fact.text) for fact in steps]
    for before, after in itertools.pairwise(stamps):
        seconds = between_s(before, after)
        if seconds is not None:
            yield StepGap(phase="training", longest_s=seconds, steps=1, over_s=seconds)


def _by_age(window: Window, steps: list[StepSeen]) -> Iterator[StepGap]:
    """All of them were written since the process began: the mean gap is not longer than that."""
    main, frame = window.main(), window.frame
    if main is None or frame is None or main.sample.age_s is None or len(steps) < 2:
        return
    over_s = steps[-1].t - (frame.t - main.sample.age_s)
    if over_s > LEAST_LIFE_S:
        longest_s = over_s / len(steps)
        yield StepGap(phase="training", longest_s=longest_s, steps=len(steps), over_s=over_s)
