"""Which of a run's processes this is; imports no torch.

One process for each drafter: it holds that drafter and its share of the targets, so hidden states
never cross a process, and only gradients do. One process alone holds all of them, as threads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dflash_train.config import Config
from dflash_train.errors import UsageError


@dataclass(frozen=True, slots=True)
class Place:
    """Rank 0 of 1: all in one process."""

    rank: int = 0
    size: int = 1

    @property
    def is_first(self) -> bool:
        """Rank 0 speaks for the run: log, figures, checkpoints."""
        return self.rank == 0

    def holds(self, index: int) -> bool:
        """Whether target or drafter number `index`, or that batch, is this process's."""
        return index % self.size == self.rank

    def name(self, worker: str) -> str:
        """A name that is unique in the run for what every process has once: `loader-1`."""
        return worker if self.is_first else f"{worker}-{self.rank}"


ALONE = Place()


def place_of(environ: Mapping[str, str]) -> Place:
    """What a launcher like torchrun has put into the environment; rank 0 of 1 without one.

    Raises:
        UsageError: processes on several machines.
    """
    size = int(environ.get("WORLD_SIZE", "1"))
    here = int(environ.get("LOCAL_WORLD_SIZE", str(size)))
    if here != size:
        raise UsageError(
            f"{size} processes, {here} of them here: all must run on one machine",
            hint="torchrun --nnodes 1",
        )
    return Place(int(environ.get("RANK", "0")), size)


def check_place(config: Config, place: Place) -> None:
    """Refuse processes that do not fit the run.

    Raises:
        UsageError: says how many there must be.
    """
    if place.size == 1:
        return
    if place.size != config.num_drafters:
        raise UsageError(
            f"{place.size} processes for {config.num_drafters} drafters, expected one for each",
            hint=f"torchrun --nproc-per-node {config.num_drafters}, or other --drafter-devices",
        )
    if config.num_targets < place.size:
        raise UsageError(
            f"target.devices: {config.num_targets} for {place.size} processes, each needs one",
            hint="name more of them (one device may stand there twice), or --launch threads",
        )
    if config.drill.fault == "lock-cycle":
        raise UsageError("drill.fault: lock-cycle needs two drafters in one process")
