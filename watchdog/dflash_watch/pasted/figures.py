"""Single figures of pasted evidence: cards that spin, clocks held down, time spent on data.

One look proves little, so each rule needs the person's own word beside it: that the run is silent,
or that steps go on.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Sequence

from dflash_watch.frame import GpuSample
from dflash_watch.model import Evidence, EvidenceKind, Severity, Source, Symptom
from dflash_watch.readers.clockreasons import ANY_HELD_DOWN, in_words
from dflash_watch.units import percent

BUSY, RESTS = 0.95, 0.05
SPIN_SHARE = 0.3
"""Of its power limit: a card that works draws more, one that waits in a kernel draws less."""
WAIT_SHARE, LEAST_LINES = 0.6, 2
_NUMBER = r"(\d{1,6}\.\d{1,6})"
_PAIRS = (
    re.compile(rf"(?i)\btime:? ?{_NUMBER}[^\n]{{0,40}}?\bdata(?:_time)?:? ?{_NUMBER}"),
    re.compile(
        rf"(?i)\bdata(?:_time)?:? ?{_NUMBER}[^\n]{{0,40}}?\b(?:batch|iter|step)_time:? ?{_NUMBER}"
    ),
)


def spinning(gpus: Sequence[GpuSample], t: float) -> Iterator[Symptom]:
    """Cards at full utilisation and little power while nothing gets on."""
    spin = [one for one in gpus if (one.utilization_ratio or 0.0) >= BUSY and _draws_little(one)]
    rest = [one for one in gpus if one.utilization_ratio is not None and one not in spin]
    if not spin or len(spin) * 2 < len(gpus):
        return
    text = f"{len(spin)} of {len(gpus)} cards read 100 % at under {percent(SPIN_SHARE)} of their"
    text += " power limit: they wait inside a kernel"
    if len(gpus) == 1:
        yield _symptom("device-never-returns", f"gpu{gpus[0].index}", t, text, Source.GPU)
        return
    idle = [one for one in rest if (one.utilization_ratio or 0.0) <= RESTS]
    subject = ", ".join(f"gpu{one.index}" for one in idle) or "run"
    text += f"; {subject} rests and is the one to look at" if idle else ""
    yield _symptom("collective-waiting", subject, t, text, Source.GPU)


def held_down(gpus: Sequence[GpuSample], t: float) -> Iterator[Symptom]:
    """Cards whose driver says that their clock is held down."""
    for one in gpus:
        if held := (one.clock_reasons or 0) & ANY_HELD_DOWN:
            text = f"gpu{one.index}: the driver holds its clock down: {in_words(held)}"
            text += f" ({one.sm_clock_mhz} MHz)" if one.sm_clock_mhz is not None else ""
            yield _symptom("clocks-held-down", f"gpu{one.index}", t, text, Source.GPU)


def waits_for_data(lines: Sequence[str], t: float) -> Iterator[Symptom]:
    """Lines that tell the time of a step and how much of it went into data."""
    shares = [share for line in lines[-200:] if (share := _share(line)) is not None]
    if len(shares) >= LEAST_LINES and statistics.median(shares) >= WAIT_SHARE:
        text = f"{percent(statistics.median(shares))} of a step's time is spent on data"
        yield _symptom("input-waits", "run", t, text, Source.LOG)


def _share(line: str) -> float | None:
    for turned, pattern in enumerate(_PAIRS):
        if found := pattern.search(line):
            whole, part = float(found[1 + turned]), float(found[2 - turned])
            return part / whole if 0 < part <= whole else None
    return None


def _draws_little(one: GpuSample) -> bool:
    if one.power_watts is None or not one.power_limit_watts:
        return False
    return one.power_watts < SPIN_SHARE * one.power_limit_watts


def _symptom(name: str, subject: str, t: float, text: str, source: Source) -> Symptom:
    own = Evidence(kind=EvidenceKind.FOR, text=text, source=source)
    return Symptom(
        name=name, subject=subject, severity=Severity.WARNING, since_t=t, summary=text,
        source=source, evidence=(own,),
    )  # fmt: skip
