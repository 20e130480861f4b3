"""Checkpoints: whole or not there, verified before use, the newest few kept.

`checkpoints/step-00000100/` holds `drafter.safetensors`, `optimizer.safetensors` and `state.json`
(step, configuration, sizes and sha256 of the others, and its own). It is written under a temporary
name, synced, then renamed.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from dflash_train.config import Config
from dflash_train.errors import CheckpointError
from dflash_train.settings import as_mapping, from_mapping

logger = logging.getLogger(__name__)

FOLDER_NAME, STATE_NAME, SCHEMA = "checkpoints", "state.json", 1
WEIGHTS_NAME, OPTIMIZER_NAME = "drafter.safetensors", "optimizer.safetensors"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What is needed to go on as if nothing had happened."""

    step: int
    """Optimizer steps done."""
    config: Config
    weights: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    path: Path


def save(
    run_dir: Path,
    step: int,
    config: Config,
    weights: Mapping[str, Tensor],
    optimizer: Mapping[str, Tensor],
) -> tuple[Path, int]:
    """Write one checkpoint and drop the oldest beyond `checkpoint.keep`.

    Returns:
        Its folder, and its size in bytes.

    Raises:
        OSError: nothing of it is left then, and nothing older was touched.
    """
    folder = run_dir / FOLDER_NAME
    folder.mkdir(exist_ok=True)
    final = folder / f"step-{step:08d}"
    part = folder / f".part-{final.name}"
    shutil.rmtree(part, ignore_errors=True)
    try:
        part.mkdir()
        files = {
            WEIGHTS_NAME: _write_tensors(part / WEIGHTS_NAME, weights),
            OPTIMIZER_NAME: _write_tensors(part / OPTIMIZER_NAME, optimizer),
        }
        size = sum((part / name).stat().st_size for name in files)
        state = {"schema": SCHEMA, "step": step, "config": as_mapping(config), "files": files}
        whole = {**state, "sha256": _state_sha256(state)}
        _write_text(part / STATE_NAME, json.dumps(whole, indent=1))
        shutil.rmtree(final, ignore_errors=True)
        part.rename(final)
        _sync_folder(folder)
    except OSError:
        shutil.rmtree(part, ignore_errors=True)
        raise
    _rotate(folder, config.checkpoint.keep)
    return final, size


def load_newest(run_dir: Path) -> Checkpoint:
    """The newest checkpoint that is whole; damaged ones are skipped with a warning.

    Raises:
        CheckpointError: there is none.
    """
    for path in reversed(_folders(run_dir / FOLDER_NAME)):
        try:
            return load(path)
        except CheckpointError as error:
            logger.warning("skipped: %s", error)
    raise CheckpointError(
        f"{run_dir}: no whole checkpoint in it", hint="start it anew with another --run-dir"
    )


def load(path: Path) -> Checkpoint:
    """Read and verify one checkpoint.

    Raises:
        CheckpointError: half written, damaged, or from a newer version.
    """
    try:
        state = json.loads((path / STATE_NAME).read_text(encoding="utf-8"))
        if state["schema"] != SCHEMA:
            raise CheckpointError(f"{path}: schema {state['schema']}, expected {SCHEMA}")
        if state.pop("sha256") != _state_sha256(state):
            raise CheckpointError(f"{path / STATE_NAME}: damaged, its sha256 is another")
        for name, facts in state["files"].items():
            seen = _sha256(path / name)
            if seen != facts["sha256"]:
                raise CheckpointError(f"{path / name}: damaged (sha256 {seen[:12]})")
        return Checkpoint(
            step=state["step"],
            config=from_mapping(state["config"]),
            weights=load_file(path / WEIGHTS_NAME),
            optimizer=load_file(path / OPTIMIZER_NAME),
            path=path,
        )
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror or error}, half written?") from error
    except (KeyError, TypeError, json.JSONDecodeError) as error:
        raise CheckpointError(f"{path / STATE_NAME}: not a checkpoint's state: {error}") from error


def _state_sha256(state: Mapping[str, object]) -> str:
    """Of all it says, whatever the layout of its text."""
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()


def _folders(folder: Path) -> list[Path]:
    return sorted(folder.glob("step-*")) if folder.is_dir() else []


def _rotate(folder: Path, keep: int) -> None:
    for old in _folders(folder)[:-keep]:
        shutil.rmtree(old, ignore_errors=True)


def _write_tensors(file: Path, tensors: Mapping[str, Tensor]) -> dict[str, object]:
    whole = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    try:
        save_file(whole, file)
    except SafetensorError as error:  # how safetensors reports a full disk
        raise OSError(str(error)) from error
    _sync_file(file)
    return {"bytes": file.stat().st_size, "sha256": _sha256(file)}


def _write_text(file: Path, text: str) -> None:
    file.write_text(text, encoding="utf-8")
    _sync_file(file)


def _sync_file(file: Path) -> None:
    with file.open("rb") as handle:
        os.fsync(handle.fileno())


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sha256(file: Path) -> str:
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
