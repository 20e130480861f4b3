"""A run's newest checkpoint as a published drafter."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from transformers import AutoConfig, PretrainedConfig

from dflash_train import checkpoint, tiny
from dflash_train.config import Config
from dflash_train.errors import CheckpointError, UsageError
from dflash_train.layouts.configs import Verifier
from dflash_train.layouts.geometry import DraftGeometry
from dflash_train.layouts.weights import PublishedDrafter

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetFacts:
    """What an exported drafter has to say about its target."""

    verifier: Verifier
    hidden_size: int
    vocab_size: int
    num_layers: int
    max_position_embeddings: int


def target_facts(config: Config) -> TargetFacts:
    """From the target's own configuration.

    Raises:
        UsageError: it cannot be read.
    """
    path = config.target.path
    if path is None:
        return facts_of(tiny.target_config(config), Verifier(name_or_path=None))
    return read_target_facts(path)


def read_target_facts(path: str) -> TargetFacts:
    """Of a target given by folder or id; a multimodal wrapper's text part.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        found = AutoConfig.from_pretrained(path)
    except (OSError, ValueError) as error:
        line = str(error).splitlines()[0]
        raise UsageError(f"target {path}: no configuration: {line}") from error
    names = tuple(getattr(found, "architectures", None) or ())
    return facts_of(found, Verifier(name_or_path=path, architectures=names))


def facts_of(config: PretrainedConfig, verifier: Verifier) -> TargetFacts:
    """The numbers of a transformers configuration."""
    text = getattr(config, "text_config", config)
    return TargetFacts(
        verifier=verifier,
        hidden_size=text.hidden_size,
        vocab_size=text.vocab_size,
        num_layers=text.num_hidden_layers,
        max_position_embeddings=text.max_position_embeddings,
    )


def name_verifier(name: str) -> TargetFacts | None:
    """Facts of a target that may not be here: None where its configuration cannot be read."""
    try:
        return read_target_facts(name)
    except UsageError as error:
        logger.warning("%s; only its name is written", error.message)
        return None


def run_geometry(config: Config, target: TargetFacts) -> DraftGeometry:
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
        max_position_embeddings=target.max_position_embeddings,
    )


def drafter_of_run(run_dir: Path, step: int | None) -> tuple[PublishedDrafter, Config, TargetFacts]:
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
    facts = target_facts(found.config)
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
