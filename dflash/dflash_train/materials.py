"""What a run is made of before its workers start: documents, a taught target, a fresh drafter."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_model, save_model
from torch import Tensor, nn
from transformers import Qwen3_5ForCausalLM

from dflash_train import streams, tiny
from dflash_train.config import Config
from dflash_train.data import BatchSource, Document
from dflash_train.drafter import Drafter, qwen3_config
from dflash_train.target_model import decoder_of, embedding_of, head_of, load_target

logger = logging.getLogger(__name__)

TARGET_NAME = "target.safetensors"


@dataclass(frozen=True, slots=True, kw_only=True)
class Materials:
    """Shared by all workers, changed by none."""

    source: BatchSource
    target: nn.Module
    """A transformers language model, on the CPU, frozen."""
    held_out: Sequence[Document] = ()
    """Never trained on; what true acceptance is measured with."""

    @property
    def decoder(self) -> nn.Module:
        """Inner decoder of the target: no lm_head."""
        return decoder_of(self.target)

    @property
    def embedding_VD(self) -> Tensor:
        """Token embedding of the target, frozen."""
        return embedding_of(self.target)

    @property
    def head_VD(self) -> Tensor:
        """lm_head of the target, frozen."""
        return head_of(self.target)


def make_materials(config: Config, run_dir: Path, on_step: Callable[[int], None]) -> Materials:
    """What `config` names: a target with a path is loaded, any other made by `make_tiny`.

    Raises:
        UsageError: the target cannot be loaded.
    """
    if config.target.path is None:
        return make_tiny(config, run_dir, on_step)
    documents, held_out = _documents(config, on_step)
    source = _source(documents, config)
    model = load_target(config.target)
    logger.info(
        "target: %s, %d layers, features of %s, fingerprint %s",
        *(config.target.path, config.target.num_layers),
        *(",".join(map(str, config.target.layer_ids)), config.target.fingerprint),
    )
    return Materials(source=source, target=model, held_out=held_out)


def make_tiny(config: Config, run_dir: Path, on_step: Callable[[int], None]) -> Materials:
    """Documents from the seed, and the target taught on them.

    A target already kept in the run directory is read instead, so that a resumed run has the very
    same one without teaching it again.

    Args:
        config: seed, data, target.
        run_dir: where the target is kept.
        on_step: called after each teaching step; may raise to stop.
    """
    documents, held_out = _documents(config, on_step)
    model = tiny.build_target(config)
    kept = run_dir / TARGET_NAME
    if not _read_target(model, kept):
        tiny.teach_target(model, documents, config, _teller(config.target.pretrain_steps, on_step))
        _keep_target(model, kept)
    model.requires_grad_(requires_grad=False)
    return Materials(source=_source(documents, config), target=model, held_out=held_out)


def _source(documents: Sequence[Document], config: Config) -> BatchSource:
    return BatchSource(documents, config, getattr(documents, "lengths", None))


def _documents(
    config: Config, on_step: Callable[[int], None]
) -> tuple[Sequence[Document], Sequence[Document]]:
    """Documents to train on, and those held out; large data are hashed, with steps between."""
    if config.data.path is not None:
        from dflash_train.corpus.documents import read_documents  # noqa: PLC0415  (Arrow: with it)

        return read_documents(config, on_step)
    documents = tiny.make_documents(config)
    lengths = [len(document.tokens) for document in documents]
    logger.info("data: %d documents, %d to %d tokens", len(lengths), min(lengths), max(lengths))
    return documents, tiny.make_held_out(config)


def _read_target(model: Qwen3_5ForCausalLM, kept: Path) -> bool:
    """Whether the kept target could be read into `model`."""
    if not kept.exists():
        return False
    try:
        load_model(model, kept)
    except (OSError, RuntimeError, SafetensorError) as error:
        logger.warning("target: %s cannot be read (%s); taught again from the seed", kept, error)
        return False
    logger.info("target: read from %s", kept)
    return True


def _keep_target(model: Qwen3_5ForCausalLM, kept: Path) -> None:
    """Only a shortcut for resuming: without it the target is taught again, to the same bits."""
    part = kept.with_suffix(".part")
    try:
        save_model(model, str(part))
        part.rename(kept)
    except (OSError, SafetensorError) as error:
        logger.warning("target not kept in %s: %s", kept, error)
        part.unlink(missing_ok=True)


def make_untaught(config: Config) -> Materials:
    """As `make_tiny`, with a target that has learned nothing; for geometry only."""
    documents, held_out = _documents(config, lambda _: None)
    target = tiny.build_target(config)
    return Materials(source=_source(documents, config), target=target, held_out=held_out)


def new_drafter(config: Config) -> Drafter:
    """A drafter with the first weights of this seed."""
    geometry = qwen3_config(config.drafter, config.target.hidden_size, config.data.vocab_size)
    with torch.random.fork_rng(devices=[]):  # modules draw once before `initialise` does
        drafter = Drafter(geometry, len(config.target.layer_ids))
    stream = streams.generator(config.seed, "drafter")
    drafter.initialise(config.drafter.initializer_range, stream)
    return drafter


def _teller(total: int, on_step: Callable[[int], None]) -> Callable[[int, float], None]:
    def tell(step: int, loss: float) -> None:
        if step == 1 or step % 10 == 0 or step == total:
            logger.info("teaching the target: %d/%d loss %.3f", step, total, loss)
        on_step(step)

    return tell
