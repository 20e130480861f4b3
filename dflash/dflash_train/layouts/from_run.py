"""A run's newest checkpoint as a published drafter."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from pathlib import Path

from dflash_train import checkpoint, tiny
from dflash_train.config import Config
from dflash_train.errors import CheckpointError, UsageError
from dflash_train.layouts.configs import Verifier
from dflash_train.layouts.geometry import CONFIG_NAME, DraftGeometry
from dflash_train.layouts.weights import PublishedDrafter
from dflash_train.target_facts import read_facts

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedTarget:
    """What an exported drafter has to say about its target, and is compared with."""

    verifier: Verifier
    hidden_size: int
    vocab_size: int
    num_layers: int
    max_position_embeddings: int | None
    special_ids: tuple[int, ...]
    """Pad, start and end of text."""


def target_of(config: Config) -> ServedTarget:
    """The target of a run, from its own configuration.

    Raises:
        UsageError: it cannot be read.
    """
    if config.target.path is not None:
        return read_target(config.target.path)
    made = tiny.target_config(config)
    return ServedTarget(
        verifier=Verifier(name_or_path=None),
        hidden_size=made.hidden_size,
        vocab_size=made.vocab_size,
        num_layers=made.num_hidden_layers,
        max_position_embeddings=made.max_position_embeddings,
        special_ids=config.target.special_ids,
    )


def read_target(path: str) -> ServedTarget:
    """Of a target given by folder or id; a multimodal wrapper's text part.

    Raises:
        UsageError: it is not here, or no decoder-only model.
    """
    facts = read_facts(path)
    whole = json.loads((facts.folder / CONFIG_NAME).read_text(encoding="utf-8"))
    return ServedTarget(
        verifier=Verifier(name_or_path=path, architectures=tuple(whole.get("architectures") or ())),
        hidden_size=facts.hidden_size,
        vocab_size=facts.vocab_size,
        num_layers=facts.num_layers,
        max_position_embeddings=facts.max_positions,
        special_ids=facts.special_ids,
    )


def name_verifier(name: str) -> ServedTarget | None:
    """A target that may not be here: None where its configuration cannot be read."""
    try:
        return read_target(name)
    except UsageError as error:
        logger.warning("%s; only its name is written", error.message)
        return None


def run_geometry(config: Config, target: ServedTarget) -> DraftGeometry:
    """The geometry that a run trains."""
    drafter = config.drafter
    slides = "sliding_attention" in drafter.layer_types
    return DraftGeometry(
        num_layers=drafter.num_layers,
        num_heads=drafter.num_heads,
        num_kv_heads=drafter.num_kv_heads,
        head_dim=drafter.head_dim,
        intermediate_size=drafter.intermediate_size,
        block_size=drafter.block_size,
        layer_types=drafter.layer_types,
        sliding_window=drafter.sliding_window if slides else None,
        mask_token_id=drafter.mask_token_id,
        rope_theta=drafter.rope_theta,
        rms_norm_eps=drafter.rms_norm_eps,
        hidden_size=target.hidden_size,
        vocab_size=target.vocab_size,
        layer_ids=config.target.layer_ids,
        num_target_layers=target.num_layers,
        max_position_embeddings=target.max_position_embeddings or config.data.buckets[-1],
    )


def drafter_of_run(
    run_dir: Path, step: int | None
) -> tuple[PublishedDrafter, Config, ServedTarget]:
    """The drafter of a checkpoint, verified.

    Args:
        run_dir: of the run.
        step: of the checkpoint; None takes the newest whole one.

    Raises:
        CheckpointError: no such checkpoint, or it is damaged.
        UsageError: the run's target cannot be read.
    """
    if step is None:
        found = checkpoint.load_newest(run_dir)
    else:
        found = checkpoint.load(run_dir / checkpoint.FOLDER_NAME / f"step-{step:08d}")
    facts = target_of(found.config)
    geometry = run_geometry(found.config, facts)
    for name, shape in geometry.tensor_shapes().items():
        if name not in found.weights or tuple(found.weights[name].shape) != shape:
            raise CheckpointError(f"{found.path}: {name} is not of the run's geometry")
    drafter = PublishedDrafter(
        layout="zlab",
        geometry=geometry,
        weights=found.weights,
        reduced=None,
        verifier=facts.verifier.name_or_path,
    )
    return drafter, found.config, facts
