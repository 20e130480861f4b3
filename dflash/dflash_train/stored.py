"""What a run directory was made with, and whether it can be gone on with; reads no tensors."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from dflash_train.config import Config
from dflash_train.errors import UsageError
from dflash_train.settings import as_mapping, from_mapping

GEOMETRY = ("target", "drafter", "data", "seed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """The state beside a checkpoint's tensors."""

    step: int
    """Optimizer steps done."""
    config: Config
    path: Path


def _essence(config: Config) -> dict[str, object]:
    """What must not change: where there is a fingerprint, files may lie elsewhere."""
    found: dict[str, object] = {"batches of a step": config.batches_per_step}
    for name in GEOMETRY:
        section = as_mapping(config)[name]
        keys = section if isinstance(section, dict) else {None: section}
        for key, value in keys.items():
            if key != "path" or not keys.get("fingerprint"):
                found[name if key is None else f"{name}.{key}"] = value
    return found


def newest_stored(run_dir: Path) -> Stored:
    """State of the newest checkpoint whose state can be read.

    Raises:
        UsageError: no checkpoint there.
    """
    for file in sorted(run_dir.glob("checkpoints/step-*/state.json"), reverse=True):
        try:
            state = json.loads(file.read_text(encoding="utf-8"))
            config = from_mapping(state["config"])
            return Stored(step=int(state["step"]), config=config, path=file.parent)
        except (OSError, ValueError, KeyError, TypeError):
            continue  # whoever loads it says why it is skipped
    raise UsageError(
        f"--run-dir {run_dir}: no checkpoint to resume from",
        hint="train first: dflash-train --preset tiny --run-dir DIR",
    )


def check_resumable(stored: Stored, config: Config) -> None:
    """Refuse to go on where nothing is left to do, or with other shapes, data or seed.

    Raises:
        UsageError: says which.
    """
    before, now = _essence(stored.config), _essence(config)
    differing = [
        f"{key} {before.get(key)}, not {value}"
        for key, value in now.items()
        if before.get(key) != value
    ]
    if differing:
        raise UsageError(
            f"{stored.path}: made with {'; '.join(differing)}",
            hint="resume without those keys, or start anew",
        )
    if stored.step >= config.optim.steps:
        raise UsageError(
            f"{stored.path}: all {stored.step} steps are made already",
            hint="for more of them: resume with optim.steps=N",
        )
