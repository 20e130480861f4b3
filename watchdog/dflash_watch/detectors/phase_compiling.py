"""The run compiles or tunes kernels.

Sees:       phase and autotune events, frames of compilers and tuners in stacks, busy compilers
            among the children. A parked compile pool does not count.
Means:      silence of minutes is ordinary; killing it throws the work away.
Wrong when: the same few kernels are tuned again for every new shape.
Source:     docs/run-directory.md, "phase" and "autotune".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dflash_watch.detectors.base import Answer, Detector, Example, View
from dflash_watch.detectors.examples import begun, over
from dflash_watch.detectors.finite import phase_symptom


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Names of phases that are one of these."""

    names: frozenset[str] = frozenset({"compiling", "tuning", "warm-up"})


def detect(view: View, params: Params) -> Iterator[Answer]:
    """The phase as it is known."""
    yield from phase_symptom(view, params.names)


def firing() -> Example:
    """A kernel is being tuned."""
    return begun(kind="autotune", kernel="k", key="1")


def clear() -> Example:
    """Tuned."""
    return over(kind="autotune", kernel="k", key="1")


DETECTOR = Detector(detect=detect, params=Params(), firing=firing, clear=clear)
