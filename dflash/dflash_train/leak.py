"""Does a block see its own answer? Change what it must not see and compare.

The commonest way to train a drafter wrong: the losses look superb and nothing is accepted later.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from dflash_train.replica import FeatureBatch


@torch.no_grad()
def leak_test(
    hidden: Callable[[FeatureBatch], Tensor], item: FeatureBatch, block_size: int
) -> list[str]:
    """Outputs of each block with the features at and after its anchor changed; must be identical.

    For each anchor rank a, every row keeps its features below its a-th anchor and gets others from
    there on; the hidden states of that block must not move by one bit.

    Args:
        hidden: a batch to the hidden states of its blocks, [B, A * K, D], as they are trained.
        item: a batch with its features.
        block_size: K.

    Returns:
        One line for each block that moved, naming it; empty when nothing leaks.
    """
    batch, features_BTF = item.batch, item.features_BTF
    B, A = batch.anchors_BA.shape
    straight = hidden(item).view(B, A, block_size, -1)
    tokens = torch.arange(features_BTF.shape[1], device=features_BTF.device)
    found: list[str] = []
    for a in range(A):
        first_B1 = batch.anchors_BA[:, a : a + 1].to(tokens.device)
        is_hidden_BT1 = (tokens[None] >= first_B1)[:, :, None]
        other = torch.where(is_hidden_BT1, features_BTF.flip(1) + 1.0, features_BTF)
        moved = hidden(FeatureBatch(batch, other)).view(B, A, block_size, -1)[:, a]
        found += [
            f"row {row}, anchor {int(batch.anchors_BA[row, a])}: output moved"
            for row in range(B)
            if bool(batch.valid_BA[row, a]) and not torch.equal(moved[row], straight[row, a])
        ]
    return found
