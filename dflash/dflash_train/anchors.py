"""Where blocks start, what they should say, and which of their positions count.

Letters: B rows, T tokens of a row, A anchors of a row, K positions of a block.
Runs on the CPU beside the loader: nothing here waits for a device.
"""

from __future__ import annotations

import torch
from torch import Tensor


def sample_anchors(
    supervised_BT: Tensor, num_anchors: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Anchors of each row without replacement, sorted; as many for every row.

    No row has room for more anchors than it has tokens, so there never are more: each would cost
    the memory of a block and teach nothing.

    A position may be an anchor when its token and the next are supervised, as at inference: the
    anchor is a token that the target gave, and there is at least one position to draft.

    Args:
        supervised_BT: bool, True where the loss counts.
        num_anchors: at most.
        generator: one stream a batch.

    Returns:
        anchors_BA (int64, ascending; 0 where not valid) and valid_BA (bool); A is `num_anchors`,
        or T where that is less.
    """
    allowed_BT = torch.zeros_like(supervised_BT)
    allowed_BT[:, 1:-1] = supervised_BT[:, 1:-1] & supervised_BT[:, 2:]
    keys_BT = torch.rand(supervised_BT.shape, generator=generator)
    keys_BT = keys_BT.masked_fill(~allowed_BT, -1.0)
    top = keys_BT.topk(min(num_anchors, keys_BT.shape[1]), dim=1)
    length = supervised_BT.shape[1]
    order_BA = torch.where(top.values >= 0, top.indices, length).sort(dim=1).values
    valid_BA = order_BA < length
    return torch.where(valid_BA, order_BA, 0), valid_BA


def block_positions(anchors_BA: Tensor, block_size: int) -> Tensor:
    """Absolute positions of all blocks: anchor, anchor + 1, ... ; [B, A, K]."""
    return anchors_BA[:, :, None] + torch.arange(block_size, device=anchors_BA.device)


def block_labels(
    input_ids_BT: Tensor, supervised_BT: Tensor, anchors_BA: Tensor, valid_BA: Tensor, size: int
) -> tuple[Tensor, Tensor]:
    """The token each block position should give, and whether it counts.

    Position k predicts token anchor + k. Position 0 is the anchor itself and never counts; nor does
    anything after a gap in the supervision or after the end of the row, since at inference a block
    is only read up to its first miss.

    Args:
        input_ids_BT: int64.
        supervised_BT: bool.
        anchors_BA: int64.
        valid_BA: bool.
        size: K.

    Returns:
        labels_BAK (int64; arbitrary where it does not count) and live_BAK (bool).
    """
    B, T = input_ids_BT.shape
    positions_BAK = block_positions(anchors_BA, size)
    inside_BAK = positions_BAK < T
    flat = positions_BAK.clamp(max=T - 1).reshape(B, -1)
    labels_BAK = input_ids_BT.gather(1, flat).view_as(positions_BAK)
    live_BAK = supervised_BT.gather(1, flat).view_as(positions_BAK) & inside_BAK
    live_BAK = live_BAK[:, :, 1:].long().cumprod(dim=2).bool() & valid_BA[:, :, None]
    return labels_BAK, torch.nn.functional.pad(live_BAK, (1, 0))
