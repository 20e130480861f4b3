"""Cross-entropy over the block positions that count, with a falling weight.

Letters: R rows that count, D hidden, V vocabulary, K block positions. The lm_head is the target's
and frozen, so only the gradient of the hidden states is needed.
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
        decay: positions until the weight has fallen by 1/e; above 0. Larger falls slower.

    Returns:
        w_K, float32, on the CPU.

    Raises:
        ValueError: block_size below 2, or decay not above 0.

    Source: DFlash paper, training objective (exponential position decay).
    """
    if block_size < 2 or decay <= 0:
        raise ValueError(
            f"block of {block_size}, decay {decay}: expected 2 or more positions, a decay above 0"
        )
    weights = torch.exp(-(torch.arange(block_size, dtype=torch.float32) - 1.0) / decay)
    weights[0] = 0.0
    return weights


class _ChunkedCrossEntropy(torch.autograd.Function):
    """Weighted sum of cross-entropies; the gradient is made in forward, chunk by chunk."""

    @staticmethod
    def forward(
        ctx: torch.autograd.function.FunctionCtx,
        hidden_RD: Tensor,
        head_VD: Tensor,
        labels_R: Tensor,
        weights_R: Tensor,
        chunk_rows: int,
    ) -> tuple[Tensor, Tensor]:
        total = torch.zeros((), dtype=torch.float32, device=hidden_RD.device)
        grad_RD = torch.empty_like(hidden_RD)
        best_R = torch.empty_like(labels_R)
        for start in range(0, hidden_RD.shape[0], chunk_rows):
            part = slice(start, start + chunk_rows)
            labels, weights = labels_R[part], weights_R[part]
            logits = functional.linear(hidden_RD[part], head_VD).float()
            best_R[part] = logits.argmax(dim=1)
            log_p = logits.log_softmax(dim=1)
            picked = log_p.gather(1, labels[:, None])[:, 0]
            total -= (weights * picked).sum()
            grad = log_p.exp_()
            grad.scatter_add_(1, labels[:, None], -torch.ones_like(picked)[:, None])
            grad.mul_(weights[:, None])
            grad_RD[part] = grad.to(head_VD.dtype) @ head_VD
        ctx.save_for_backward(grad_RD)
        ctx.mark_non_differentiable(best_R)
        return total, best_R

    @staticmethod
    def backward(
        ctx: torch.autograd.function.FunctionCtx, grad_total: Tensor, _: Tensor
    ) -> tuple[Tensor, None, None, None, None]:
        (grad_RD,) = ctx.saved_tensors  # type: ignore[attr-defined]  # torch sets it
        return grad_RD * grad_total, None, None, None, None


def weighted_cross_entropy(
    hidden_RD: Tensor, head_VD: Tensor, labels_R: Tensor, weights_R: Tensor, chunk_rows: int
) -> tuple[Tensor, Tensor]:
    """Sum over rows of weight x cross-entropy, and the best token of each row.

    Args:
        hidden_RD: rows that count, compacted; the anchor's row is never among them.
        head_VD: frozen; gets no gradient.
        labels_R: int64.
        weights_R: float32.
        chunk_rows: rows of one product; logits of more never exist at once.

    Returns:
        Scalar float32 (a sum: divide by the sum of weights over *all* drafters and micro-steps),
        and int64 best_R.
    """
    total, best = _ChunkedCrossEntropy.apply(hidden_RD, head_VD, labels_R, weights_R, chunk_rows)
    return total, best
