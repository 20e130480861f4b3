"""What a step says about itself, summed on the device and read once an interval.

Letters: R rows that count, A blocks, K block positions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

FIELDS = ("loss", "weight", "accepted", "blocks", "correct_first", "grad_norm", "skipped", "steps")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepMetrics:
    """Means over an interval of steps."""

    loss: float
    """Weighted mean of the cross-entropy, nats."""
    acceptance_length: float
    """Teacher-forced estimate, bonus included: 1 + mean length of the correct prefix."""
    first_ratio: float
    """Share of blocks whose first drafted token is right."""
    grad_norm: float
    skipped: int
    """Steps left out because their gradient was not finite."""


def correct_prefix(correct_R: Tensor, rows_R: Tensor, num_blocks: int, block_size: int) -> Tensor:
    """Length of the correct prefix of each block, anchor excluded; [num_blocks], int64.

    Args:
        correct_R: bool, one for each row that counts.
        rows_R: index of each row in the flattened [num_blocks, K].
        num_blocks: blocks, also those without a row.
        block_size: K.
    """
    flat = torch.zeros(num_blocks * block_size, dtype=torch.long, device=correct_R.device)
    flat[rows_R] = correct_R.long()
    return flat.view(num_blocks, block_size)[:, 1:].cumprod(dim=1).sum(dim=1)


def block_sums(best_R: Tensor, labels_R: Tensor, rows_R: Tensor, live_AK: Tensor) -> Tensor:
    """`accepted`, `blocks`, `correct_first` over blocks with at least one row; float32 [3]."""
    num_blocks, block_size = live_AK.shape
    prefix_A = correct_prefix(best_R == labels_R, rows_R, num_blocks, block_size)
    counted_A = live_AK.any(dim=1)
    return torch.stack(
        [
            (prefix_A * counted_A).sum().float(),
            counted_A.sum().float(),
            ((prefix_A > 0) & counted_A).sum().float(),
        ]
    )


def read_metrics(sums: Tensor) -> StepMetrics:
    """One copy from the device, turned into means; not-a-number where nothing was counted."""
    values = dict(zip(FIELDS, sums.tolist(), strict=True))

    def mean(value: float, count: float) -> float:
        return value / count if count else math.nan

    return StepMetrics(
        loss=mean(values["loss"], values["weight"]),
        acceptance_length=1.0 + mean(values["accepted"], values["blocks"]),
        first_ratio=mean(values["correct_first"], values["blocks"]),
        grad_norm=mean(values["grad_norm"], values["steps"]),
        skipped=round(values["skipped"]),
    )
