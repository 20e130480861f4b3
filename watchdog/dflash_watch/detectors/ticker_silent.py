"""The interpreter no longer switches threads.

Sees:       the age of the ticker's last beat in shared memory, while the process is not stopped.
Means:      a C call keeps the interpreter lock, whether it computes or sleeps.
Wrong when: the machine is so overloaded that no thread runs for seconds.
Source:     docs/run-directory.md, "beats".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dflash_watch.detectors.base import Answer, Detector, Example, View, missing, symptom
from dflash_watch.detectors.examples import beats, example, frames, worker
from dflash_watch.model import Severity, Source
from dflash_watch.units import duration
from dflash_watch.window.tracks import DISK, STOPPED, ZOMBIE


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Limits."""

    least_s: float = 5.0
    """Silence that no scheduler explains."""


def detect(view: View, params: Params) -> Iterator[Answer]:
    """Ticker age, unseen spans left out."""
    told, main = view.window.told, view.window.main()
    if told.beats is None or told.beats_t is None or told.beats.ticker is None:
        yield missing("run", "whether its threads still get their turns: the run does not tell")
        return
    if main is None or main.track.state in STOPPED | ZOMBIE | frozenset(DISK):
        return
    since_t = told.beats_t - told.beats.ticker.age_s
    age_s = view.window.sight.seen_s(since_t, told.beats_t)
    if age_s > params.least_s:
        owner = _owner(view, since_t)
        text = f"the interpreter has switched no thread for {duration(age_s)}"
        text += f"; {owner} owns its lock" if owner is not None else ""
        yield symptom(owner or "run", Severity.CRITICAL, since_t, text, Source.BEATS)


def _owner(view: View, since_t: float) -> str | None:
    """Who owns the interpreter lock in the newest sample taken since then."""
    samples = view.window.samples.order
    if not samples or samples[-1].t < since_t:
        return None
    sample = samples[-1]
    owner = next((one for one in sample.threads if one.owns_gil), None)
    if owner is None:
        return None
    name = view.window.thread_name(sample.pid, owner.tid or 0)
    return name or owner.name or f"thread {owner.tid}"


def firing() -> Example:
    """Seven seconds without a tick."""
    quiet = frames(8, beats=lambda i: beats(worker("drafter-0"), ticker_age_s=float(i)))
    return example(quiet, subject="run")


def clear() -> Example:
    """Ticks."""
    return example(frames(8, beats=beats(worker("drafter-0"))))


DETECTOR = Detector(detect=detect, params=Params(), firing=firing, clear=clear)
