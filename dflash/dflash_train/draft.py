"""The drafter with what surrounds it: the target's embedding and lm_head, the mask token, a block.

One place for both uses, so that they cannot part: `hidden` for training, all blocks of a batch at
once under a mask; `extend` and `block` for decoding, one block at a time over a cache.
Letters: B rows, T tokens, A anchors, K block positions, N = A * K, F features, R rows of lm_head.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from dflash_train.anchors import block_positions
from dflash_train.config import Config
from dflash_train.data import Batch
from dflash_train.drafter import Drafter
from dflash_train.drafting import ContextCache, draft_block
from dflash_train.masks import masks_for


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A drafter on one device; the target's tensors lie there too."""

    drafter: Drafter
    embedding_VD: Tensor
    head_VD: Tensor
    config: Config

    @property
    def device(self) -> torch.device:
        """Where all of it lies."""
        return self.embedding_VD.device

    @property
    def block_size(self) -> int:
        """K."""
        return self.config.drafter.block_size

    def hidden(self, batch: Batch, features_BTF: Tensor) -> Tensor:
        """Hidden states of all blocks of a batch; [B, N, D], in the type that is computed in."""
        anchors, valid = batch.anchors_BA.to(self.device), batch.valid_BA.to(self.device)
        features = features_BTF.to(self.device, self._dtype)
        masks = masks_for(
            self.config.drafter.layer_types,
            anchors,
            valid,
            features.shape[1],
            self.block_size,
            self.config.drafter.sliding_window,
        )
        ids = torch.full((*anchors.shape, self.block_size), self.config.drafter.mask_token_id)
        ids[:, :, 0] = batch.input_ids_BT.gather(1, batch.anchors_BA)
        embeds = self.embeds(ids.flatten(1))
        positions = block_positions(anchors, self.block_size).flatten(1)
        with self._computing():
            hidden_BND: Tensor = self.drafter(features, embeds, positions, masks)
        return hidden_BND

    @torch.no_grad()
    def best(self, hidden_RD: Tensor) -> Tensor:
        """The likeliest token of each row, int64 [R]."""
        chunk = self.config.loss.chunk_rows
        rows = hidden_RD.to(self.head_VD.dtype).split(chunk)
        return torch.cat([functional.linear(part, self.head_VD).argmax(dim=1) for part in rows])

    def begin(self) -> ContextCache:
        """The empty context of a document."""
        return ContextCache(self.drafter)

    @torch.no_grad()
    def extend(self, context: ContextCache, features_XF: Tensor) -> None:
        """Add the target's features of accepted tokens."""
        with self._computing():
            context.extend(features_XF.to(self.device, self._dtype))

    @torch.no_grad()
    def block(self, context: ContextCache, anchor: int) -> Tensor:
        """The anchor, which stands right after the context, and K - 1 drafted tokens; int64 [K]."""
        ids = torch.full((self.block_size,), self.config.drafter.mask_token_id)
        ids[0] = anchor
        with self._computing():
            hidden = draft_block(self.drafter, context, self.embeds(ids))
        ids[1:] = self.best(hidden[1:]).cpu()
        return ids

    @property
    def _dtype(self) -> torch.dtype:
        return compute_dtype(self.config.optim.compute_dtype, self.device.type)

    def embeds(self, ids: Tensor) -> Tensor:
        """Of tokens, never in a smaller type than is computed in."""
        embeds = self.embedding_VD[ids.to(self.device)]
        return embeds.to(torch.promote_types(embeds.dtype, self._dtype))

    def _computing(self) -> torch.autocast:
        is_smaller = self._dtype != torch.float32
        return torch.autocast(self.device.type, dtype=self._dtype, enabled=is_smaller)


def compute_dtype(name: str, device_type: str) -> torch.dtype:
    """The type of forward and backward; `auto` is bfloat16 on a GPU and float32 elsewhere."""
    if name == "auto":
        return torch.bfloat16 if device_type == "cuda" else torch.float32
    return torch.bfloat16 if name == "bfloat16" else torch.float32
