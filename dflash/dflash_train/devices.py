"""Are the devices of the configuration there?"""

from __future__ import annotations

import torch

from dflash_train.config import Config
from dflash_train.errors import UsageError


def check_devices(config: Config) -> None:
    """Refuse device names that torch cannot use here.

    Raises:
        UsageError: names the key, the device, and what there is.
    """
    here = ["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]
    for key, devices in (
        ("target.devices", config.target.devices),
        ("drafter.devices", config.drafter.devices),
    ):
        for device in devices:
            if device not in here:
                raise UsageError(f"{key}: no {device} here, expected one of {', '.join(here)}")
