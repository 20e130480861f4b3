"""The devices of a run: are they there, which GPU is which, whose turn is it."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from dflash_train.config import Config
from dflash_train.errors import UsageError


def check_devices(config: Config) -> None:
    """Refuse device names that torch cannot use here.

    Raises:
        UsageError: names the key, the device, and what there is.
    """
    check_names("target.devices", config.target.devices)
    check_names("drafter.devices", config.drafter.devices)


def check_names(key: str, devices: Sequence[str]) -> None:
    """Refuse devices that are not here.

    Raises:
        UsageError: names `key`, the device, and what there is.
    """
    here = ["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]
    for device in devices:
        if device not in here:
            raise UsageError(f"{key}: no {device} here, expected one of {', '.join(here)}")


def use_device(device: str) -> None:
    """Make it the calling thread's own: what names no device (a tuner's buffers) lands there."""
    if device.startswith("cuda"):
        torch.cuda.set_device(device)


def give_back_memory() -> None:
    """Let others have what torch keeps of GPU memory and does not use."""
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def gpu_uuid(device: str) -> str | None:
    """`GPU-...` as the driver's tools print it; None for what is no GPU."""
    if not device.startswith("cuda"):
        return None
    return f"GPU-{torch.cuda.get_device_properties(device).uuid}"
