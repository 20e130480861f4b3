"""Drafting as a server does it: the context's keys and values are cached, one block at a time.

The training mask must give exactly what this gives; `leak.py` and the tests compare the two.
Letters: F features, D hidden, K block positions, C cached context tokens.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dflash_train.drafter import Drafter


class ContextCache:
    """Keys and values of one document's context, one pair a layer; grows with accepted tokens."""

    def __init__(self, drafter: Drafter) -> None:
        self._drafter = drafter
        self._layers: list[tuple[Tensor, Tensor] | None] = [None] * len(drafter.stack)
        self.length = 0

    def extend(self, features_XF: Tensor) -> None:
        """Add the target's features of the next X positions."""
        context = self._drafter.context(features_XF[None])
        positions = torch.arange(self.length, self.length + len(features_XF))[None]
        rope = self._drafter.rotary_emb(context, positions.to(context.device))
        for index, layer in enumerate(self._drafter.stack):
            pair = layer.self_attn.keys_values(context, rope)
            old = self._layers[index]
            if old is not None:
                pair = (torch.cat([old[0], pair[0]], dim=2), torch.cat([old[1], pair[1]], dim=2))
            self._layers[index] = pair
        self.length += len(features_XF)

    def visible(self, index: int, offset: int, window: int | None) -> tuple[Tensor, Tensor]:
        """What the block position `offset` of layer `index` may see of the context."""
        pair = self._layers[index]
        if pair is None:
            raise ValueError("extend() comes before drafting")
        first = 0 if window is None else max(0, self.length + offset - (window - 1))
        return pair[0][:, :, first:], pair[1][:, :, first:]


@torch.no_grad()
def draft_block(drafter: Drafter, cache: ContextCache, embeds_KD: Tensor) -> Tensor:
    """Hidden states of one block whose anchor stands right after the cached context.

    Full layers look at all of the block; sliding layers position by position, each at itself and
    what lies behind it within the window.

    Returns:
        [K, D], after the last norm.
    """
    K = embeds_KD.shape[0]
    positions = cache.length + torch.arange(K, device=embeds_KD.device)
    rope = drafter.rotary_emb(embeds_KD[None], positions[None])
    hidden = embeds_KD[None]
    for index, layer in enumerate(drafter.stack):
        if layer.kind == "full_attention":
            hidden = layer(hidden, cache.visible(index, 0, None), rope, None)
            continue
        window = drafter.config.sliding_window
        rows = []
        for offset in range(K):
            mask = torch.zeros(1, K, K, dtype=torch.bool)
            mask[:, :, max(0, offset - window + 1) : offset + 1] = True
            pair = cache.visible(index, offset, window)
            context = torch.ones(1, K, pair[0].shape[2], dtype=torch.bool)
            sees = torch.cat([context, mask], dim=2).to(hidden.device)
            rows.append(layer(hidden, pair, rope, sees)[:, offset])
        hidden = torch.stack(rows, dim=1)
    return drafter.norm(hidden)[0]
