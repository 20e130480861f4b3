"""Running out of memory, said so that a person can act: which batch, how much, what to change."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from dflash_train.config import Config
from dflash_train.data import Batch
from dflash_train.errors import DflashError

CPU_WORDS = re.compile(r"can't allocate memory: you tried to allocate (\d+) bytes")
GPU_WORDS = re.compile(r"Tried to allocate ([\d.]+ [KMGT]iB)")


class OutOfRoomError(DflashError):
    """A device has not the memory for a batch."""


def asked_for(error: BaseException) -> str | None:
    """What could not be allocated, or None when `error` is no want of memory."""
    text = str(error)
    found = CPU_WORDS.search(text)
    if found:
        return f"{int(found[1]) / 1e9:.2f} GB"
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        found = GPU_WORDS.search(text)
        return found[1] if found else "some memory"
    return None


@contextmanager
def room_for(batch: Batch, config: Config, device: str) -> Iterator[None]:
    """Work on one batch; want of memory comes out as one line.

    Raises:
        OutOfRoomError: names device, batch, amount and the settings that need less.
    """
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
        amount = asked_for(error)
        if amount is None:
            raise
        rows, length = batch.input_ids_BT.shape
        raise OutOfRoomError(
            f"out of memory on {device}: {amount} more for {rows} rows of the bucket"
            f" {length}{_in_use(device)}",
            hint=advice(config),
        ) from error


def advice(config: Config) -> str:
    """Which settings need less memory, with their values now."""
    said = [f"data.rows below {config.data.rows}"] if config.data.rows > 1 else []
    if len(config.data.buckets) > 1:
        said.append(f"data.buckets without {config.data.buckets[-1]}")
    most = min(config.loss.num_anchors, *config.data.buckets[-1:])  # no row has more than tokens
    said.append(f"loss.num_anchors below {most}")
    if not config.optim.gradient_checkpointing:
        said.append("optim.gradient_checkpointing=true")
    return "try " + ", or ".join(said)


def _in_use(device: str) -> str:
    if not device.startswith("cuda"):
        return ""
    free, total = torch.cuda.mem_get_info(device)
    own = torch.cuda.memory_allocated(device)
    return f" ({own / 1e9:.1f} GB of this run, {free / 1e9:.1f} of {total / 1e9:.1f} GB free)"
