"""The processes of one run as a group: sums over all, waits for all, one failure for all.

Tensors on a GPU are summed by NCCL, those in host memory by gloo. What is in host memory goes first
and is waited for by the host: a process that has gone is noticed before a GPU waits for it.
"""

from __future__ import annotations

from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

from dflash_train.errors import DflashError
from dflash_train.place import Place

PATIENCE = timedelta(hours=2)
"""How long a process may be waited for: longer than any evaluation or checkpoint of rank 0."""
FAILED = "dflash/failed"


class PeerLostError(DflashError):
    """Another process of the run has failed or has gone; this one is not the cause."""


class Group:
    """This process's end of it.

    Args:
        place: which process, of how many.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
        try:
            # the store lives in the launcher and outlives each of the run's processes
            self._store, rank, size = next(rendezvous("env://"))
            dist.init_process_group(
                backend,
                store=self._store,
                rank=rank,
                world_size=size,
                timeout=PATIENCE,
            )
        except (RuntimeError, ValueError) as error:
            raise DflashError(f"processes cannot meet: {error}") from error

    def add(self, *tensors: Tensor) -> None:
        """Each becomes its sum over all processes, the same bits everywhere.

        Raises:
            PeerLostError: one of them has gone.
        """
        try:
            for tensor in tensors:
                dist.all_reduce(tensor)
        except RuntimeError as error:
            raise self._lost() from error

    def wait(self) -> None:
        """Until all are here.

        Raises:
            PeerLostError: one of them has gone.
        """
        self.add(torch.zeros(1))

    def tell_failure(self, line: str) -> None:
        """Say why this process fails; the first to say so is heard by all."""
        try:
            self._store.compare_set(FAILED, "", f"rank {self.place.rank}: {line}")
        except RuntimeError:
            return  # the launcher has gone as well: nobody is left to tell

    def failure(self) -> str | None:
        """What the first process to fail said; None while none has."""
        try:
            if not self._store.check([FAILED]):
                return None
            return self._store.get(FAILED).decode()
        except RuntimeError:
            return "the launcher has gone"

    def close(self) -> None:
        """Leave without waiting for anybody."""
        dist.destroy_process_group()

    def _lost(self) -> PeerLostError:
        return PeerLostError(self.failure() or "another process has gone without a word")
