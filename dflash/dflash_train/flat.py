"""All weights of a drafter as one float32 vector, and their gradients as another.

One vector makes the exchange, the clipping and the optimizer single operations. The module's own
parameters become views, so forward and backward do not notice.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn


class FlatParameters:
    """Matrices first (they may decay), then gains.

    Args:
        module: its parameters are moved into the vector.
    """

    def __init__(self, module: nn.Module) -> None:
        named = sorted(module.named_parameters(), key=lambda pair: pair[1].ndim < 2)
        self._named = named
        total = sum(p.numel() for _, p in named)
        device = named[0][1].device
        self.weights = torch.empty(total, dtype=torch.float32, device=device)
        self._gradients = [torch.zeros_like(self.weights) for _ in range(2)]
        self.num_decayed = sum(p.numel() for _, p in named if p.ndim >= 2)
        for (_, parameter), view in zip(named, self._views(self.weights), strict=True):
            view.copy_(parameter.detach())
            parameter.data = view

    def begin_step(self, step: int) -> Tensor:
        """Zero this step's gradient vector and let backward add into it."""
        gradient = self._gradients[step % 2]
        gradient.zero_()
        for (_, parameter), view in zip(self._named, self._views(gradient), strict=True):
            parameter.grad = view
        return gradient

    def groups(self) -> tuple[nn.Parameter, nn.Parameter]:
        """The vector as two parameters for an optimizer: matrices, gains."""
        return (
            nn.Parameter(self.weights[: self.num_decayed]),
            nn.Parameter(self.weights[self.num_decayed :]),
        )

    def named_views(self, vector: Tensor) -> dict[str, Tensor]:
        """A vector laid out like the weights, as named tensors."""
        names = (name for name, _ in self._named)
        return dict(zip(names, self._views(vector), strict=True))

    def _views(self, vector: Tensor) -> Iterator[Tensor]:
        start = 0
        for _, parameter in self._named:
            yield vector[start : start + parameter.numel()].view(parameter.shape)
            start += parameter.numel()
