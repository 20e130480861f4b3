"""Prepared shards as documents to train on, and the few that are held out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import overload

import numpy as np
import torch

from dflash_train import streams
from dflash_train.config import Config
from dflash_train.corpus.shards import Corpus, document, open_corpus
from dflash_train.data import Document
from dflash_train.errors import UsageError

logger = logging.getLogger(__name__)


class ShardDocuments(Sequence[Document]):
    """Some documents of a corpus, read when they are asked for.

    Args:
        corpus: opened.
        chosen: which of its documents, in which order.
    """

    def __init__(self, corpus: Corpus, chosen: Sequence[int]) -> None:
        self._corpus, self._chosen = corpus, chosen
        self.lengths = [corpus.lengths[number] for number in chosen]
        """Tokens of each document, known without reading it."""

    def __len__(self) -> int:
        return len(self._chosen)

    @overload
    def __getitem__(self, place: int) -> Document: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Document]: ...
    def __getitem__(self, place: int | slice) -> Document | Sequence[Document]:
        if isinstance(place, slice):
            return ShardDocuments(self._corpus, self._chosen[place])
        ids, mask = document(self._corpus, self._chosen[place])
        first = int(np.argmax(mask))
        return Document(
            tokens=tuple(ids.tolist()),
            prompt_length=first,
            supervised=None if mask[first:].all() else tuple(mask.tolist()),
        )


def all_documents(config: Config) -> ShardDocuments:
    """Every document of the data, none held out; to evaluate on."""
    corpus = open_corpus(Path(str(config.data.path)))
    return ShardDocuments(corpus, range(len(corpus.lengths)))


def read_documents(
    config: Config, on_bytes: Callable[[int], None] = lambda _: None
) -> tuple[ShardDocuments, ShardDocuments]:
    """Documents to train on, and those held out.

    `on_bytes` is called after each few megabytes that were verified; it may raise to stop.
    Whole conversations are held out; which ones depends on the seed and on how many there are.

    Raises:
        UsageError: shards are damaged, none holds a block, or they are too few for a step.
    """
    folder = Path(str(config.data.path))
    corpus = open_corpus(folder, on_bytes)
    size = config.drafter.block_size
    whole = [number for number, length in enumerate(corpus.lengths) if length >= size]
    if not whole:
        raise UsageError(
            f"--data {folder}: all {len(corpus.lengths)} documents are shorter than a block of"
            f" {size}",
            hint="train with a smaller drafter.block_size, or prepare longer documents",
        )
    if len(whole) < len(corpus.lengths):
        lost = len(corpus.lengths) - len(whole)
        logger.warning("data: %d documents left out: shorter than a block of %d", lost, size)
    kept, held_out = _split(config, whole, corpus.talks)
    window = config.data.rows * config.batches_per_step
    if len(kept) < window:
        raise UsageError(
            f"--data {folder}: {len(kept)} documents to train on, expected {window}, enough for one"
            " step",
            hint="fewer data.rows, or data.held_out=0",
        )
    logger.info(
        "data: %s, %d documents of %d to %d tokens, %d more held out",
        *(folder, len(kept), min(corpus.lengths), max(corpus.lengths), len(held_out)),
    )
    return ShardDocuments(corpus, kept), ShardDocuments(corpus, held_out)


def _split(
    config: Config, numbers: Sequence[int], talks: Sequence[int]
) -> tuple[list[int], list[int]]:
    """Documents to train on, and those of the conversations that are held out."""
    known = sorted({talks[number] for number in numbers})
    count = min(config.data.held_out, len(known) // 10)
    stream = streams.generator(config.seed, "held-out")
    picks = torch.randperm(len(known), generator=stream)[:count].tolist()
    apart = {known[pick] for pick in picks}
    kept = [number for number in numbers if talks[number] not in apart]
    return kept, [number for number in numbers if talks[number] in apart]
