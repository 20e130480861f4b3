"""From a run, or from the other layout, to a folder that serving engines load."""

from __future__ import annotations

import dataclasses
import logging
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_model
from transformers.utils import logging as transformers_logging

from dflash_train import tiny
from dflash_train.config import Config
from dflash_train.errors import UsageError
from dflash_train.layouts.configs import Verifier, build_config
from dflash_train.layouts.from_run import drafter_of_run, name_verifier
from dflash_train.layouts.geometry import Layout
from dflash_train.layouts.weights import (
    PublishedDrafter,
    read_published,
    tensors_for,
    write_folder,
)
from dflash_train.materials import TARGET_NAME

logger = logging.getLogger(__name__)

TINY_TARGET_NAME = "target"
"""Folder beside the drafter's files: the tiny target exists nowhere else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is to be written."""

    layout: Layout
    out: Path
    """Does not exist yet."""
    dtype: str
    verifier: str | None
    """The target's name to write; None: the run's, or the one the source names."""


def export_run(run_dir: Path, step: int | None, request: Request) -> None:
    """A checkpoint's drafter; with the tiny target, if that is what it drafts for.

    Raises:
        CheckpointError: no such whole checkpoint.
        DflashError: it cannot be written.
    """
    drafter, config, facts = drafter_of_run(run_dir, step)
    kept = run_dir / TARGET_NAME
    with_target = config.target.path is None and request.verifier is None and kept.exists()
    verifier = facts.verifier
    if with_target:
        verifier = Verifier(
            name_or_path=str((request.out / TINY_TARGET_NAME).absolute()),
            architectures=("Qwen3_5ForCausalLM",),
        )
    _write(drafter, _verifier(request, verifier), request)
    if with_target:
        _write_tiny_target(config, kept, request.out / TINY_TARGET_NAME)


def convert(source: Path, request: Request) -> None:
    """A published drafter in another layout or precision.

    A reduced vocabulary has no place in the z-lab layout: the body is written, which then speaks
    through the target's own lm_head.

    Raises:
        CheckpointError: the source is no drafter.
        DflashError: it cannot be written.
    """
    drafter = read_published(source)
    name = request.verifier or drafter.verifier
    facts = name_verifier(name) if name else None
    if drafter.geometry.num_target_layers is None and facts is not None:
        geometry = dataclasses.replace(drafter.geometry, num_target_layers=facts.num_layers)
        drafter = dataclasses.replace(drafter, geometry=geometry)
    if drafter.reduced is not None and request.layout == "zlab":
        logger.warning("%s: its reduced lm_head has no place in the zlab layout; left out", source)
    known = facts.verifier if facts else Verifier(name_or_path=name)
    _write(drafter, known, request)


def _verifier(request: Request, known: Verifier) -> Verifier:
    if request.verifier is None:
        return known
    facts = name_verifier(request.verifier)
    return facts.verifier if facts else Verifier(name_or_path=request.verifier)


def _write(drafter: PublishedDrafter, verifier: Verifier, request: Request) -> None:
    if request.layout == "speculators" and verifier.name_or_path is None:
        raise UsageError(
            "--verifier: missing, the speculators layout names its target",
            hint="give --verifier PATH_OR_ID",
        )
    reduced = len(drafter.reduced.kept_R) if drafter.reduced else None
    config = build_config(
        request.layout,
        drafter.geometry,
        verifier,
        dtype=request.dtype,
        draft_vocab_size=reduced,
    )
    dtype: torch.dtype = getattr(torch, request.dtype)
    write_folder(request.out, config, tensors_for(request.layout, drafter, dtype))


def _write_tiny_target(config: Config, kept: Path, folder: Path) -> None:
    model = tiny.build_target(config)
    load_model(model, kept)
    transformers_logging.disable_progress_bar()  # standard error is for trouble
    model.save_pretrained(folder)
