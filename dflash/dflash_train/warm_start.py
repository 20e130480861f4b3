"""Training that goes on from a published drafter, whatever layout it lies in."""

from __future__ import annotations

import logging
from pathlib import Path

import torch

from dflash_train.config import Config
from dflash_train.drafter import Drafter, qwen3_config
from dflash_train.errors import UsageError
from dflash_train.layouts.geometry import CONFIG_NAME, geometry_of, load_config
from dflash_train.layouts.weights import PublishedDrafter, read_published

logger = logging.getLogger(__name__)


def settings_of(folder: Path) -> dict[str, dict[str, object]]:
    """Sections of settings that make a drafter of the published one's shapes; reads no tensor.

    Raises:
        CheckpointError: not a drafter.
    """
    return geometry_of(load_config(folder), str(folder / CONFIG_NAME)).settings()


def check_warm_start(config: Config) -> None:
    """Refuse a published drafter that this run cannot go on from, before anything is written.

    Raises:
        CheckpointError: not a drafter, or not a whole one.
        UsageError: other shapes than this run's, or a vocabulary of its own.
    """
    if config.drafter.init is None:
        return
    published = _read(config.drafter.init)
    size, expected = published.geometry.hidden_size, config.target.hidden_size
    if size != expected:
        raise UsageError(
            f"--init {config.drafter.init}: hidden size {size}, the target's is {expected}",
            hint="a drafter goes on over the target it was trained with",
        )
    geometry = qwen3_config(config.drafter, config.target.hidden_size, config.data.vocab_size)
    with torch.device("meta"):  # shapes without memory
        drafter = Drafter(geometry, len(config.target.layer_ids))
    _refuse_other_shapes(drafter, published, config.drafter.init)


@torch.no_grad()
def start_from(drafter: Drafter, path: str) -> None:
    """Give a new drafter the weights of a published one, in float32.

    Raises:
        UsageError: other shapes.
    """
    published = _read(path)
    _refuse_other_shapes(drafter, published, path)
    for name, parameter in drafter.named_parameters():
        parameter.copy_(published.weights[name])
    logger.info("drafter: goes on from %s (%s layout)", path, published.layout)


def _refuse_other_shapes(drafter: Drafter, published: PublishedDrafter, path: str) -> None:
    own = {name: tuple(each.shape) for name, each in drafter.named_parameters()}
    seen = {name: tuple(each.shape) for name, each in published.weights.items()}
    for name in sorted(own.keys() | seen.keys()):
        if own.get(name) != seen.get(name):
            raise UsageError(
                f"--init {path}: {name} is {_shape(seen.get(name))} there,"
                f" {_shape(own.get(name))} in this run",
                hint="leave out drafter.* and target.layer_ids: its own are taken",
            )


def _read(path: str) -> PublishedDrafter:
    published = read_published(Path(path))
    if published.reduced is not None:
        raise UsageError(
            f"--init {path}: speaks a reduced vocabulary of {len(published.reduced.kept_R)} tokens",
            hint="expected a drafter over the target's whole vocabulary",
        )
    return published


def _shape(shape: tuple[int, ...] | None) -> str:
    return "missing" if shape is None else str(list(shape))
