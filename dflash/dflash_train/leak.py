"""Does a block see its own answer? Change what it must not see and compare.

The commonest way to train a drafter wrong: the losses look superb and nothing is accepted later.
"""

from __future__ import annotations

import torch

from dflash_train.replica import DrafterReplica, FeatureBatch


@torch.no_grad()
def leak_test(replica: DrafterReplica, item: FeatureBatch) -> list[str]:
    """Outputs of each block with the features at and after its anchor changed; must be identical.

    For each anchor rank a, every row keeps its features below its a-th anchor and gets others from
    there on; the hidden states of that block must not move by one bit.

    Args:
        replica: the drafter as it trains.
        item: a batch with its features.

    Returns:
        One line for each block that moved, naming it; empty when nothing leaks.
    """
    batch, size = item.batch, replica.block_size
    B, A = batch.anchors_BA.shape
    straight = replica.hidden(item).view(B, A, size, -1)
    tokens = torch.arange(item.features_BTF.shape[1], device=item.features_BTF.device)
    found = []
    for a in range(A):
        first_B1 = batch.anchors_BA[:, a : a + 1].to(tokens.device)
        hidden_from = (tokens[None] >= first_B1)[:, :, None]
        other = torch.where(hidden_from, item.features_BTF.flip(1) + 1.0, item.features_BTF)
        moved = replica.hidden(FeatureBatch(batch, other)).view(B, A, size, -1)[:, a]
        found += [
            f"row {row}, anchor {int(batch.anchors_BA[row, a])}: output moved"
            for row in range(B)
            if bool(batch.valid_BA[row, a]) and not torch.equal(moved[row], straight[row, a])
        ]
    return found
