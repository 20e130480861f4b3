"""Batches: documents, lengths, anchors and labels, all ready on the host.

Letters: B rows, T tokens padded, A anchors, K block positions, R rows that count.
Batch i is a function of (seed, i): nothing has to be saved to go on after a stop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from dflash_train import buckets, streams
from dflash_train.anchors import block_labels, sample_anchors
from dflash_train.config import Config
from dflash_train.loss import position_weights


@dataclass(frozen=True, slots=True)
class Document:
    """Tokens, and where the loss counts."""

    tokens: tuple[int, ...]
    prompt_length: int
    """Tokens before the first that counts."""
    supervised: tuple[bool, ...] | None = None
    """One a token where there are gaps; None: all from `prompt_length` on."""

    def mask(self) -> tuple[bool, ...]:
        """True where the loss counts, one a token."""
        if self.supervised is not None:
            return self.supervised
        return (False,) * self.prompt_length + (True,) * (len(self.tokens) - self.prompt_length)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """All that a drafter needs beside the features; on the host."""

    index: int
    input_ids_BT: Tensor
    attention_BT: Tensor
    """1 for tokens, 0 for padding; padding stands on the right."""
    anchors_BA: Tensor
    valid_BA: Tensor
    live_AK: Tensor
    """[B * A, K], True where a block position counts."""
    rows_R: Tensor
    """Index of each row that counts in the flattened [B * A * K]."""
    labels_R: Tensor
    weights_R: Tensor
    """By position; what a loss that follows the drafter (`dpace`) uses is made with it."""
    num_tokens: int
    """Real tokens, padding left out."""


class BatchSource:
    """Batches of a run by their number.

    Args:
        documents: what is learned from.
        config: buckets, rows, anchors, block size, seed.
        lengths: tokens of each document, where they are known without reading it.
    """

    def __init__(
        self,
        documents: Sequence[Document],
        config: Config,
        lengths: Sequence[int] | None = None,
    ) -> None:
        self._documents = documents
        self._config = config
        self._lengths = lengths or [len(document.tokens) for document in documents]
        self._weights_K = position_weights(config.drafter.block_size, config.decay)
        self._window_rows = config.data.rows * config.batches_per_step
        self._windows = lru_cache(maxsize=2)(self._plan)
        self.steps_per_epoch = len(self._windows(0))

    def _plan(self, epoch: int) -> list[buckets.Window]:
        shuffle = streams.generator(self._config.seed, "epoch", epoch)
        order = torch.randperm(len(self._documents), generator=shuffle).tolist()
        return buckets.plan_epoch(
            self._lengths, self._config.data.buckets, self._window_rows, order
        )

    def batch(self, index: int) -> Batch:
        """Batch `index`: step index // batches_per_step, whatever the epoch."""
        step, part = divmod(index, self._config.batches_per_step)
        epoch, place = divmod(step, self.steps_per_epoch)
        window = self._windows(epoch)[place]
        rows = self._config.data.rows
        chosen = [self._documents[i] for i in window.documents[part * rows : (part + 1) * rows]]
        return self._collate(index, chosen, window.bucket)

    def largest(self) -> Batch:
        """A batch of the longest bucket, for warming up; its number is none of the run's."""
        order = sorted(range(len(self._lengths)), key=lambda place: -self._lengths[place])
        longest = [self._documents[place] for place in order[: self._config.data.rows]]
        return self._collate(-1, longest, self._config.data.buckets[-1])

    def _collate(self, index: int, documents: Sequence[Document], bucket: int) -> Batch:
        input_ids = torch.zeros(len(documents), bucket, dtype=torch.long)
        attention = torch.zeros_like(input_ids)
        supervised = torch.zeros(len(documents), bucket, dtype=torch.bool)
        for row, document in enumerate(documents):
            length = len(document.tokens)
            input_ids[row, :length] = torch.tensor(document.tokens)
            attention[row, :length] = 1
            supervised[row, :length] = torch.tensor(document.mask())
        stream = streams.generator(self._config.seed, "anchors", index)
        anchors, valid = sample_anchors(supervised, self._config.loss.num_anchors, stream)
        size = self._config.drafter.block_size
        labels, live = block_labels(input_ids, supervised, anchors, valid, size)
        rows = live.flatten().nonzero()[:, 0]
        return Batch(
            index=index,
            input_ids_BT=input_ids,
            attention_BT=attention,
            anchors_BA=anchors,
            valid_BA=valid,
            live_AK=live.flatten(0, 1),
            rows_R=rows,
            labels_R=labels.flatten()[rows],
            weights_R=self._weights_K[rows % size],
            num_tokens=int(attention.sum()),
        )
