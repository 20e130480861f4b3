"""The drafters' meeting when each of them is in a process of its own."""

from __future__ import annotations

from collections.abc import Callable

import torch
from dflash_events import Worker

from dflash_train.averaging import Meeting, Parcel
from dflash_train.group import Group


class ProcessMeeting:
    """Sums over all processes; used like `averaging.GradientMeeting`.

    Args:
        group: of the run's processes.
        is_stop_requested: here; a request in one process stops all of them at the same step.
    """

    def __init__(self, group: Group, is_stop_requested: Callable[[], bool]) -> None:
        self._group, self.is_stop_requested = group, is_stop_requested
        self.is_stopping = False

    def meet(self, rank: int, step: int, parcel: Parcel, worker: Worker) -> Meeting:  # noqa: ARG002  (as the other meeting)
        """Bring a parcel, get the sum of all as one parcel.

        Raises:
            PeerLostError: a process has gone.
        """
        told = torch.tensor(
            [parcel.num_tokens, parcel.num_padded, int(self.is_stop_requested())],
            dtype=torch.int64,
        )
        with worker.waiting("peer", object="gradient-meeting"):
            self._group.add(told, parcel.sums, parcel.gradient)
        tokens, padded, stops = told.tolist()
        self.is_stopping = stops > 0
        whole = Parcel(
            gradient=parcel.gradient, sums=parcel.sums, num_tokens=tokens, num_padded=padded
        )
        return Meeting((whole,), self.is_stopping)
