"""What a text of nvidia-smi holds: the records that its parsers fill."""

from __future__ import annotations

import msgspec

from dflash_watch.frame import GpuSample


class SmiProcess(msgspec.Struct, frozen=True, kw_only=True):
    """One row of a process table; `pid` counts in the namespace of whoever ran the tool."""

    gpu: int | None
    pid: int
    name: str | None = None
    """None where the tool could not say (`[Not Found]`, `Unknown Error`)."""
    kind: str | None = None
    """`C`, `G`, `C+G`, `M+C`."""
    memory_bytes: int | None = None


class MigDevice(msgspec.Struct, frozen=True, kw_only=True):
    """One slice of a partitioned GPU; utilisation is not reported for it."""

    gpu: int
    instance: int
    compute: int
    device: int
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """All GPUs at one moment."""

    gpus: tuple[GpuSample, ...]
    stamp: str | None = None
    """As the text states it."""


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """A message in place of values."""

    kind: str
    """`mismatch no-driver lost refused none-found no-tool`."""
    text: str
    bus_id: str | None = None
    """Of the GPU it is about."""


class GpuText(msgspec.Struct, frozen=True, kw_only=True):
    """All that a text says about GPUs."""

    looks: tuple[Look, ...] = ()
    """Oldest first: one, or as many as a loop (`-l`, `dmon`) printed."""
    form: str = "none"
    """`table csv apps query list dmon none`."""
    driver: str | None = None
    cuda: str | None = None
    mig: tuple[MigDevice, ...] = ()
    processes: tuple[SmiProcess, ...] | None = None
    """None: the text has no process table. Empty: the tool showed none, as it does in a container
    even while some run."""
    trouble: tuple[Trouble, ...] = ()
    guessed: tuple[str, ...] = ()
    """Columns of a CSV without header, named by their units and places alone."""
    unread: tuple[str, ...] = ()
    """Columns and rows that say nothing known here."""

    @property
    def gpus(self) -> tuple[GpuSample, ...]:
        """The newest look."""
        return self.looks[-1].gpus if self.looks else ()
