"""Folders of published drafters: read whole or not at all, written whole or not at all.

Letters: V vocabulary, R rows of a reduced lm_head.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from dflash_train.errors import CheckpointError, DflashError, UsageError
from dflash_train.layouts.geometry import (
    CONFIG_NAME,
    DraftGeometry,
    Layout,
    geometry_of,
    layout_of,
    load_config,
)

WEIGHTS_NAME, INDEX_NAME = "model.safetensors", "model.safetensors.index.json"
FROM_VERIFIER = ("embed_tokens.weight", "verifier_lm_head.weight", "verifier_norm.weight")
"""Copies of the target's own tensors that a speculators folder may hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReducedHead:
    """A drafter's own lm_head over some tokens of the target's vocabulary."""

    kept_R: Tensor
    """int64, ascending ids of the target's vocabulary, one for each row."""
    head_RD: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedDrafter:
    """A drafter as it lies in a folder."""

    layout: Layout
    geometry: DraftGeometry
    weights: dict[str, Tensor]
    """Exactly the names of `geometry.tensor_shapes()`, as stored."""
    reduced: ReducedHead | None
    """None when it speaks the target's whole vocabulary through the target's lm_head."""
    verifier: str | None
    """The target as the folder names it; None where it does not."""


def read_published(folder: Path) -> PublishedDrafter:
    """A drafter in either layout.

    Raises:
        CheckpointError: not a drafter, or names and shapes are not those of its configuration.
    """
    config = load_config(folder)
    geometry = geometry_of(config, str(folder / CONFIG_NAME))
    tensors = read_tensors(folder)
    expected = geometry.tensor_shapes()
    missing = sorted(expected.keys() - tensors.keys())
    if missing:
        raise CheckpointError(f"{folder}: no tensor {missing[0]} ({len(missing)} missing)")
    for name, shape in expected.items():
        if tuple(tensors[name].shape) != shape:
            raise CheckpointError(
                f"{folder}: {name} is {list(tensors[name].shape)}, expected {list(shape)}"
            )
    beside = {"lm_head.weight", "t2d", "d2t", *FROM_VERIFIER}
    unknown = sorted(tensors.keys() - expected.keys() - beside)
    if unknown:
        raise CheckpointError(f"{folder}: {unknown[0]}: a tensor this drafter has no place for")
    verifier = (config.get("speculators_config") or {}).get("verifier") or {}
    return PublishedDrafter(
        layout=layout_of(config) or "zlab",
        geometry=geometry,
        weights={name: tensors[name] for name in expected},
        reduced=_reduced_head(tensors, config, geometry, folder),
        verifier=verifier.get("name_or_path"),
    )


def tensor_files(folder: Path) -> dict[str, Path]:
    """Tensor name to the file it lies in: one file, or those of an index.

    Raises:
        CheckpointError: no such files, or one of the index is missing.
    """
    index = folder / INDEX_NAME
    try:
        if index.exists():
            names = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
            return {name: folder / file for name, file in names.items()}
        with safe_open(folder / WEIGHTS_NAME, framework="pt") as opened:
            return dict.fromkeys(opened.keys(), folder / WEIGHTS_NAME)
    except (OSError, SafetensorError, ValueError, KeyError) as error:
        raise CheckpointError(f"{folder}: no readable {WEIGHTS_NAME}: {error}") from error


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """Every tensor of a folder.

    Raises:
        CheckpointError: a file is missing or damaged.
    """
    files = tensor_files(folder)
    found: dict[str, Tensor] = {}
    for file in sorted(set(files.values())):
        try:
            with safe_open(file, framework="pt") as opened:
                names = [name for name, place in files.items() if place == file]
                found |= {name: opened.get_tensor(name) for name in names}
        except (OSError, SafetensorError) as error:
            raise CheckpointError(f"{file}: cannot be read: {error}") from error
    return found


def offsets_of(kept_R: Tensor) -> Tensor:
    """`d2t`: what is added to a row's number to get the target's token id; int64 [R]."""
    return kept_R - torch.arange(len(kept_R))


def tensors_for(layout: Layout, drafter: PublishedDrafter, dtype: torch.dtype) -> dict[str, Tensor]:
    """What a folder of `layout` holds of `drafter`; a reduced lm_head only in speculators'."""
    found = {name: tensor.to(dtype) for name, tensor in drafter.weights.items()}
    if drafter.reduced is None or layout == "zlab":
        return found
    kept = drafter.reduced.kept_R
    t2d = torch.zeros(drafter.geometry.vocab_size, dtype=torch.bool)
    t2d[kept] = True
    head = drafter.reduced.head_RD.to(dtype)
    return {**found, "lm_head.weight": head, "t2d": t2d, "d2t": offsets_of(kept)}


def _reduced_head(
    tensors: Mapping[str, Tensor], config: Mapping[str, Any], geometry: DraftGeometry, folder: Path
) -> ReducedHead | None:
    rows = config.get("draft_vocab_size")
    if rows is None or rows == geometry.vocab_size:
        return None
    lacking = [name for name in ("lm_head.weight", "d2t") if name not in tensors]
    if lacking:
        raise CheckpointError(f"{folder}: vocabulary reduced to {rows}, but no {lacking[0]}")
    kept = tensors["d2t"].long() + torch.arange(len(tensors["d2t"]))
    in_order = bool((kept[1:] > kept[:-1]).all())
    if (
        len(kept) != rows
        or not in_order
        or int(kept[0]) < 0
        or int(kept[-1]) >= geometry.vocab_size
    ):
        raise CheckpointError(
            f"{folder}: d2t is no table of offsets to {rows} of {geometry.vocab_size} tokens"
        )
    if "t2d" in tensors and not torch.equal(tensors["t2d"].nonzero()[:, 0], kept):
        raise CheckpointError(f"{folder}: t2d and d2t name different tokens")
    return ReducedHead(kept_R=kept, head_RD=tensors["lm_head.weight"])


def write_folder(folder: Path, config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Configuration and one file of tensors, in place in one step.

    Raises:
        UsageError: the folder is there already.
        DflashError: it cannot be written; nothing of it is left.
    """
    part = folder.with_name(f".part-{folder.name}")
    if folder.exists():
        raise UsageError(f"--out {folder}: exists already", hint="give a folder that does not")
    try:
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        whole = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        save_file(whole, part / WEIGHTS_NAME, metadata={"format": "pt"})
        text = json.dumps(config, indent=2, sort_keys=True)
        (part / CONFIG_NAME).write_text(text + "\n", encoding="utf-8")
        for name in (WEIGHTS_NAME, CONFIG_NAME):
            with (part / name).open("rb") as file:
                os.fsync(file.fileno())
        part.rename(folder)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(part, ignore_errors=True)
        raise DflashError(f"--out {folder}: not written: {error}") from error
