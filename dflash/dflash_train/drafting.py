"""Drafting as a server does it: the context's keys and values are cached, one block at a time.

The training mask must give exactly what this gives; `leak.py` and the tests compare the two.
Letters: X tokens of context, F features, D hidden, K block positions, S = context + K keys.
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

    def pair(self, index: int) -> tuple[Tensor, Tensor]:
        """Keys and values of layer `index`, [1, heads, length, head] each.

        Raises:
            ValueError: nothing is cached yet.
        """
        pair = self._layers[index]
        if pair is None:
            raise ValueError("extend() comes before drafting")
        return pair


@torch.no_grad()
def draft_block(drafter: Drafter, cache: ContextCache, embeds_KD: Tensor) -> Tensor:
    """Hidden states of one block whose anchor stands right after the cached context.

    Full layers look at all of the context and the block; sliding layers at `sliding_window`
    positions that end with their own.

    Returns:
        [K, D], after the last norm.
    """
    device = embeds_KD.device
    key_S = torch.arange(cache.length + embeds_KD.shape[0], device=device)
    position_K = key_S[cache.length :]
    behind_KS = position_K[:, None] - key_S[None, :]
    window = drafter.config.sliding_window or len(key_S)  # None where no layer slides
    sees_KS = (behind_KS >= 0) & (behind_KS < window)
    rope = drafter.rotary_emb(embeds_KD[None], position_K[None])
    hidden = embeds_KD[None]
    for index, layer in enumerate(drafter.stack):
        mask = None if layer.kind == "full_attention" else sees_KS[None]
        hidden = layer(hidden, cache.pair(index), rope, mask)
    return drafter.norm(hidden)[0]
