"""What moved between stack samples, read once a sample and kept while a silence lasts.

A round of samples that found nothing is followed by the next one after a pause; what the last round
saw still stands meanwhile, as long as no step was made.
"""

from __future__ import annotations

from collections.abc import Sequence

from dflash_watch.frame import StackSample
from dflash_watch.readers.stacks import Comparison, compare
from dflash_watch.window.samples import Samples


class Comparisons:
    """Comparisons of the samples of one run."""

    def __init__(self) -> None:
        self._read: dict[int, tuple[tuple[float, ...], Comparison]] = {}
        self._standing: dict[int, Comparison] = {}
        self._since_step_t: float | None = None

    def current(
        self, samples: Samples, since_t: float | None, ticks_per_s: int
    ) -> Comparison | None:
        """Of the process that the present suspicion is about; None with fewer than two samples."""
        taken = samples.episode(since_t) if since_t is not None else []
        return self._compare(taken, ticks_per_s) if len(taken) >= 2 else None

    def standing(
        self, samples: Samples, since_t: float | None, last_step_t: float | None, ticks_per_s: int
    ) -> dict[int, Comparison]:
        """The newest one since the last step of each process, by pid.

        Args:
            samples: of the run.
            since_t: when the present suspicion began; None while there is none.
            last_step_t: of the newest step.
            ticks_per_s: of the watched host's `/proc`.
        """
        if since_t is None or last_step_t != self._since_step_t:
            self._standing, self._since_step_t = {}, last_step_t
        if since_t is not None:
            for taken in (samples.episode(since_t), *samples.other_episodes(since_t).values()):
                if len(taken) >= 2:
                    self._standing[taken[0].pid] = self._compare(taken, ticks_per_s)
        return dict(self._standing)

    def _compare(self, taken: Sequence[StackSample], ticks_per_s: int) -> Comparison:
        pid, at = taken[0].pid, tuple(sample.t for sample in taken)
        known = self._read.get(pid)
        if known is None or known[0] != at:
            known = self._read[pid] = (at, compare(taken, ticks_per_s))
        return known[1]
