"""The configuration a run directory was made with; read without torch."""

from __future__ import annotations

import json
from pathlib import Path

from dflash_train.config import Config
from dflash_train.errors import UsageError
from dflash_train.settings import from_mapping


def stored_config(run_dir: Path) -> Config:
    """Configuration of the newest checkpoint whose state can be read.

    Raises:
        UsageError: no checkpoint there.
    """
    for state in sorted(run_dir.glob("checkpoints/step-*/state.json"), reverse=True):
        try:
            return from_mapping(json.loads(state.read_text(encoding="utf-8"))["config"])
        except (OSError, ValueError, KeyError, TypeError):
            continue  # the loader says why it skips it
    raise UsageError(
        f"--run-dir {run_dir}: no checkpoint to resume from",
        hint="train first: dflash-train --preset tiny --run-dir DIR",
    )
