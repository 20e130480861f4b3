"""The meeting point of the drafters: every step, all gradients for everybody, in rank order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dflash_events import Worker
from torch import Tensor

from dflash_train.fate import Fate

RECHECK_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Parcel:
    """What one drafter brings to the meeting of a step."""

    gradient: Tensor
    """Flat gradient of the *sum* of weighted losses."""
    sums: Tensor
    """`metrics.FIELDS`, on the drafter's device; the loss weights behind the gradient are among
    them."""
    num_tokens: int
    num_padded: int


@dataclass(frozen=True, slots=True)
class Meeting:
    """The outcome of a step's meeting, equal for all drafters."""

    parcels: tuple[Parcel, ...]
    stop: bool
    """A stop was requested: this step is the last."""


class GradientMeeting:
    """A barrier that exchanges parcels and decides, once for all, whether to go on.

    Gradients lie in two buffers by turns, so one barrier a step is enough: whoever writes a buffer
    again has met everybody who read it.

    Args:
        names: the drafters, in rank order.
        is_stop_requested: asked by the last one to arrive.
        fate: ends the wait.
    """

    def __init__(
        self, names: tuple[str, ...], is_stop_requested: Callable[[], bool], fate: Fate
    ) -> None:
        self._names, self._fate = names, fate
        self.is_stop_requested = is_stop_requested
        self._changed = fate.condition()
        self._brought: dict[int, Parcel] = {}
        self._outcome: tuple[int, Meeting] | None = None

    @property
    def is_stopping(self) -> bool:
        """True once the drafters have agreed that the step just met is the last."""
        outcome = self._outcome
        return outcome is not None and outcome[1].stop

    def meet(self, rank: int, step: int, parcel: Parcel, worker: Worker) -> Meeting:
        """Bring a parcel, get everybody's.

        Raises:
            PipelineStoppedError: the pipeline ended while waiting.
        """
        with self._changed:
            self._brought[rank] = parcel
            if len(self._brought) == len(self._names):
                parcels = tuple(self._brought[r] for r in range(len(self._names)))
                self._brought = {}
                self._outcome = (step, Meeting(parcels, self.is_stop_requested()))
                self._changed.notify_all()
                return self._outcome[1]
            return self._wait(step, worker)

    def _wait(self, step: int, worker: Worker) -> Meeting:
        with worker.waiting("peer", object="gradient-meeting", on=self._late()):
            while (outcome := self._outcome) is None or outcome[0] != step:
                self._fate.check()
                worker.waits_on(self._late())
                self._changed.wait(RECHECK_S)
        return outcome[1]

    def _late(self) -> str | None:
        missing = (name for rank, name in enumerate(self._names) if rank not in self._brought)
        return next(missing, None)
