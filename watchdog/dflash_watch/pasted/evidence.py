"""What can be pasted: each part may be absent, and absent is not empty."""

from __future__ import annotations

import msgspec

from dflash_watch.frame import StackSample
from dflash_watch.model import Record
from dflash_watch.readers.collectives import RankState
from dflash_watch.readers.gpumodel import GpuText


class Observed(Record, frozen=True, kw_only=True):
    """What a person saw; None was not looked at."""

    process_alive: bool | None = None
    silent_s: float | None = None
    first_step_seen: bool | None = None
    steps_advancing: bool | None = None


class PastedProcess(Record, frozen=True, kw_only=True):
    """One process of a listing or of `context.yaml`."""

    state: str | None = None
    """As `ps` writes it: `Sl`, `D`, `Z`."""
    wchan: str | None = None
    kernel_stack: tuple[str, ...] = ()
    cmd: str | None = None
    pid: int | None = None
    ppid: int | None = None
    cpu: float | None = None
    """Per cent as `ps` writes it: an average over the process's whole life."""
    notes: tuple[str, ...] = ()
    """What is wrong with the listing itself, in words."""


class Context(Record, frozen=True, kw_only=True):
    """context.yaml without its prose."""

    observed: Observed = Observed()
    roles: dict[str, tuple[int, ...]] = msgspec.field(default_factory=dict)
    expected_tokens_per_s: float | None = None
    processes: tuple[PastedProcess, ...] | None = None
    gpu_table_empty: bool | None = None
    """The driver's process table was looked at, and listed nobody."""


class Evidence(Record, frozen=True, kw_only=True):
    """All that was given."""

    log: str | None = None
    """Text, or the parts of a large one that may tell something."""
    stacks: tuple[StackSample, ...] | None = None
    log_stacks: tuple[StackSample, ...] = ()
    """Dumps that stand in the log."""
    gpus: GpuText | None = None
    processes: tuple[PastedProcess, ...] | None = None
    ranks: tuple[RankState, ...] = ()
    """Of flight recorders' dumps."""
    context: Context | None = None
    notes: tuple[str, ...] = ()
    """Files that could not be read, and why."""

    @property
    def all_stacks(self) -> tuple[StackSample, ...]:
        """Of the log, then those given by themselves."""
        return (*self.log_stacks, *(self.stacks or ()))

    @property
    def observed(self) -> Observed:
        """What a person saw, if anybody said."""
        return self.context.observed if self.context is not None else Observed()

    @property
    def all_processes(self) -> tuple[PastedProcess, ...]:
        """Of the listing and of the context together."""
        told = self.context.processes if self.context is not None else None
        return (*(self.processes or ()), *(told or ()))
