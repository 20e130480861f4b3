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
        return collate(self._config, index, chosen, window.bucket)

    def largest(self) -> Batch:
        """A batch of the longest bucket, for warming up; its number is none of the run's."""
        order = sorted(range(len(self._lengths)), key=lambda place: -self._lengths[place])
        longest = [self._documents[place] for place in order[: self._config.data.rows]]
        return collate(self._config, -1, longest, self._config.data.buckets[-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Some documents side by side, padded on the right; each [B, T]."""

    input_ids_BT: Tensor
    attention_BT: Tensor
    supervised_BT: Tensor


def pad(documents: Sequence[Document], length: int) -> Rows:
    """Documents padded to `length` tokens."""
    input_ids = torch.zeros(len(documents), length, dtype=torch.long)
    attention = torch.zeros_like(input_ids)
    supervised = torch.zeros(len(documents), length, dtype=torch.bool)
    for row, document in enumerate(documents):
        end = len(document.tokens)
        input_ids[row, :end] = torch.tensor(document.tokens)
        attention[row, :end] = 1
        supervised[row, :end] = torch.tensor(document.mask())
    return Rows(input_ids_BT=input_ids, attention_BT=attention, supervised_BT=supervised)


def collate(config: Config, index: int, documents: Sequence[Document], length: int) -> Batch:
    """One batch of some documents, padded to `length`; its anchors follow from (seed, index)."""
    rows = pad(documents, length)
    stream = streams.generator(config.seed, "anchors", index)
    anchors, valid = sample_anchors(rows.supervised_BT, config.loss.num_anchors, stream)
    return assemble(config, index, rows, anchors, valid)


def assemble(config: Config, index: int, rows: Rows, anchors_BA: Tensor, valid_BA: Tensor) -> Batch:
    """A batch whose blocks start at the given anchors."""
    size = config.drafter.block_size
    labels, live = block_labels(rows.input_ids_BT, rows.supervised_BT, anchors_BA, valid_BA, size)
    counting = live.flatten().nonzero()[:, 0]
    return Batch(
        index=index,
        input_ids_BT=rows.input_ids_BT,
        attention_BT=rows.attention_BT,
        anchors_BA=anchors_BA,
        valid_BA=valid_BA,
        live_AK=live.flatten(0, 1),
        rows_R=counting,
        labels_R=labels.flatten()[counting],
        weights_R=position_weights(size, config.decay)[counting % size],
        num_tokens=int(rows.attention_BT.sum()),
    )
