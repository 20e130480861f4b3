"""Who sees whom in a drafter: one mask a step and layer type, built from intervals.

Letters: B rows, T context tokens, A anchors, K block positions, N = A * K queries, S = T + N keys.
Keys are `[context 0..T-1 | block_0 | block_1 | ...]`; the context is never queried.
"""

from __future__ import annotations

import torch
from torch import Tensor


def block_mask(
    anchors_BA: Tensor,
    valid_BA: Tensor,
    num_tokens: int,
    block_size: int,
    window: int | None,
) -> Tensor:
    """True where a query may look.

    A query of the block at anchor a sees context positions strictly below a, and its own block: all
    of it, or with a window the positions up to its own. Strictly below matters: the target's state
    at the anchor has already seen the answer's first token.

    Args:
        anchors_BA: int64.
        valid_BA: bool; blocks that are not valid see themselves only.
        num_tokens: T.
        block_size: K.
        window: None for a full layer; else W, and a query at position p sees p - W + 1 .. p.

    Returns:
        bool, [B, N, T + N].
    """
    B, A = anchors_BA.shape
    N = A * block_size
    device = anchors_BA.device
    offset_N = torch.arange(N, device=device) % block_size
    block_N = torch.arange(N, device=device) // block_size
    anchor_BN = anchors_BA.repeat_interleave(block_size, dim=1)
    context_T = torch.arange(num_tokens, device=device)
    sees_BNT = context_T < anchor_BN[:, :, None]
    sees_BNT &= valid_BA.repeat_interleave(block_size, dim=1)[:, :, None]
    own_NN = block_N[:, None] == block_N[None, :]
    if window is not None:
        first_BN = anchor_BN + offset_N - (window - 1)
        sees_BNT &= context_T >= first_BN[:, :, None]
        behind_NN = offset_N[:, None] - offset_N[None, :]
        own_NN &= (behind_NN >= 0) & (behind_NN < window)
    return torch.cat([sees_BNT, own_NN.expand(B, N, N)], dim=2)


def masks_for(
    layer_types: tuple[str, ...],
    anchors_BA: Tensor,
    valid_BA: Tensor,
    num_tokens: int,
    block_size: int,
    window: int,
) -> dict[str, Tensor]:
    """One mask for each layer type that occurs."""
    return {
        kind: block_mask(
            anchors_BA,
            valid_BA,
            num_tokens,
            block_size,
            window if kind == "sliding_attention" else None,
        )
        for kind in sorted(set(layer_types))
    }
