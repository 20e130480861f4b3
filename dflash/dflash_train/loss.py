"""Cross-entropy of the block positions that count, and what each of them weighs.

Letters: R rows that count, D hidden, V vocabulary, K block positions, N blocks. The lm_head is the
target's and frozen, so only the gradient of the hidden states is needed.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def position_weights(block_size: int, decay: float) -> Tensor:
    """Loss weight of each position of a block: 0 at the anchor, 1 next, then falling.

    w_0 = 0;  w_k = exp(-(k - 1) / decay)  for k = 1 .. K - 1.

    Args:
        block_size: K, positions of a block, anchor included; at least 2.
        decay: positions until the weight has fallen by 1/e; above 0. Larger falls slower, infinity
            not at all.

    Returns:
        w_K, float32, on the CPU.

    Raises:
        ValueError: block_size below 2, or decay not above 0.

    Source: DFlash paper, training objective (exponential position decay).
    """
    if block_size < 2 or not decay > 0:
        raise ValueError(
            f"block of {block_size}, decay {decay}: expected 2 or more positions, a decay above 0"
        )
    weights = torch.exp(-(torch.arange(block_size, dtype=torch.float32) - 1.0) / decay)
    weights[0] = 0.0
    return weights


def pace_weights(
    losses_R: Tensor, rows_R: Tensor, num_blocks: int, block_size: int, floor: float
) -> Tensor:
    """What each row adds to the expected acceptance, as the drafter stands now (D-PACE).

    q_i = (1 - floor) exp(-CE_i) + floor;  w_j = sum over m >= j of prod over i <= m of q_i,
    over the positions of its block that count. A position behind an unlikely one weighs little,
    and no position nothing.

    Args:
        losses_R: cross-entropy of each row; no gradient flows through what it weighs.
        rows_R: index of each row in the flattened [num_blocks, K].
        num_blocks: N.
        block_size: K.
        floor: 0 to 1; 0.5 in the paper, 0.3 to 0.7 work alike.

    Returns:
        w_R, float32.

    Source: D-PACE paper (arXiv 2605.18810).
    """
    chance = torch.zeros(num_blocks * block_size, device=losses_R.device)
    chance[rows_R] = (1.0 - floor) * torch.exp(-losses_R.detach().float()) + floor
    reached_NK = chance.view(num_blocks, block_size)[:, 1:].cumprod(dim=1)
    later_NK = reached_NK.flip(1).cumsum(dim=1).flip(1)
    return functional.pad(later_NK, (1, 0)).flatten()[rows_R]


class _ChunkedCrossEntropy(torch.autograd.Function):
    """Cross-entropy of each row; its gradient is made in forward, chunk by chunk."""

    @staticmethod
    def forward(
        ctx: torch.autograd.function.FunctionCtx,
        hidden_RD: Tensor,
        head_VD: Tensor,
        labels_R: Tensor,
        chunk_rows: int,
    ) -> tuple[Tensor, Tensor]:
        losses_R = torch.empty(hidden_RD.shape[0], dtype=torch.float32, device=hidden_RD.device)
        grad_RD = torch.empty_like(hidden_RD)
        best_R = torch.empty_like(labels_R)
        for start in range(0, hidden_RD.shape[0], chunk_rows):
            part = slice(start, start + chunk_rows)
            labels = labels_R[part]
            logits = functional.linear(hidden_RD[part].to(head_VD.dtype), head_VD).float()
            best_R[part] = logits.argmax(dim=1)
            log_p = logits.log_softmax(dim=1)
            picked = log_p.gather(1, labels[:, None])[:, 0]
            losses_R[part] = -picked
            grad = log_p.exp_()
            grad.scatter_add_(1, labels[:, None], -torch.ones_like(picked)[:, None])
            grad_RD[part] = (grad.to(head_VD.dtype) @ head_VD).to(grad_RD.dtype)
        ctx.save_for_backward(grad_RD)
        ctx.mark_non_differentiable(best_R)
        return losses_R, best_R

    @staticmethod
    def backward(
        ctx: torch.autograd.function.FunctionCtx, grad_R: Tensor, _: Tensor
    ) -> tuple[Tensor, None, None, None]:
        (grad_RD,) = ctx.saved_tensors  # type: ignore[attr-defined]  # torch sets it
        return grad_RD * grad_R[:, None].to(grad_RD.dtype), None, None, None


def cross_entropy(
    hidden_RD: Tensor, head_VD: Tensor, labels_R: Tensor, chunk_rows: int
) -> tuple[Tensor, Tensor]:
    """Cross-entropy and best token of each row.

    Args:
        hidden_RD: rows that count, compacted; the anchor's row is never among them.
        head_VD: frozen; gets no gradient.
        labels_R: int64.
        chunk_rows: rows of one product; logits of more never exist at once.

    Returns:
        losses_R (float32, nats, with the gradient of hidden_RD) and best_R (int64).
    """
    losses, best = _ChunkedCrossEntropy.apply(hidden_RD, head_VD, labels_R, chunk_rows)
    return losses, best
