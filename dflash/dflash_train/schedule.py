"""The learning rate, known on the host without asking a device."""

from __future__ import annotations

import math

from dflash_train.config import OptimConfig


def learning_rate(optim: OptimConfig, step: int) -> float:
    """Linear to `lr` over the warm-up, then a cosine down to `min_lr_ratio * lr`.

    Args:
        optim: steps, lr, warmup_ratio, min_lr_ratio.
        step: 0 for the first update.
    """
    warm = max(1, round(optim.warmup_ratio * optim.steps))
    if step < warm:
        return optim.lr * (step + 1) / warm
    done = min(1.0, (step - warm) / max(1, optim.steps - warm))
    low = optim.min_lr_ratio
    return optim.lr * (low + (1 - low) * 0.5 * (1 + math.cos(math.pi * done)))
