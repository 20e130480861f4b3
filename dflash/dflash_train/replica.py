"""One drafter with its optimizer on one device: gradients in, weights out; equal on every device.

Letters: B rows, T tokens, N block positions of a row, F features, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dflash_train.averaging import Parcel
from dflash_train.config import Config
from dflash_train.data import Batch
from dflash_train.draft import Draft
from dflash_train.drafter import Drafter
from dflash_train.flat import FlatParameters
from dflash_train.loss import cross_entropy, pace_weights
from dflash_train.metrics import FIELDS, block_sums
from dflash_train.schedule import learning_rate
from dflash_train.target_model import tables_on


@dataclass(frozen=True, slots=True)
class FeatureBatch:
    """What travels through the hidden-state queue."""

    batch: Batch
    features_BTF: Tensor


class DrafterReplica:
    """A copy of the drafter that makes exactly the steps its siblings make.

    Args:
        drafter: moved to `device` and into one vector.
        embedding_VD: the target's token embedding, frozen.
        head_VD: the target's lm_head, frozen.
        config: geometry, loss and optimizer.
        device: where this replica lives.
    """

    def __init__(
        self, drafter: Drafter, embedding_VD: Tensor, head_VD: Tensor, config: Config, device: str
    ) -> None:
        self.drafter = drafter.to(device)
        self.drafter.recompute = config.optim.gradient_checkpointing
        self._config, self._device = config, torch.device(device)
        embedding_VD, head_VD = tables_on(embedding_VD, head_VD, device)
        self.draft = Draft(
            drafter=self.drafter, embedding_VD=embedding_VD, head_VD=head_VD, config=config
        )
        self.flat = FlatParameters(self.drafter)
        optim = config.optim
        matrices, gains = self.flat.groups()
        self.optimizer = torch.optim.AdamW(
            [
                {"params": [matrices], "weight_decay": optim.weight_decay},
                {"params": [gains], "weight_decay": 0.0},
            ],
            lr=optim.lr,
            betas=optim.betas,
            fused=True,
        )
        self._mean = torch.zeros_like(self.flat.weights)
        matrices.grad = self._mean[: self.flat.num_decayed]
        gains.grad = self._mean[self.flat.num_decayed :]
        self._allocate_state()

    def _allocate_state(self) -> None:
        """Optimizer state exists from the start: a step that is skipped changes nothing else."""
        self._update(0.0, torch.ones((), device=self._device))

    def hidden(self, item: FeatureBatch) -> Tensor:
        """Hidden states of all block positions, in the type that is computed in; [B, N, D]."""
        return self.draft.hidden(item.batch, item.features_BTF)

    def accumulate(self, item: FeatureBatch) -> Tensor:
        """Add one batch's gradient to the step's; `metrics.FIELDS` of the batch."""
        batch = item.batch
        rows, labels = batch.rows_R.to(self._device), batch.labels_R.to(self._device)
        hidden_RD = self.hidden(item).flatten(0, 1)[rows]
        losses, best = cross_entropy(
            hidden_RD, self.draft.head_VD, labels, self._config.loss.chunk_rows
        )
        weights = self._weights(losses, batch, rows)
        total = (weights * losses).sum()
        total.backward()
        counted = block_sums(best, labels, rows, batch.live_AK.to(self._device))
        sums = torch.zeros(len(FIELDS), device=self._device)
        sums[0], sums[1], sums[2:5] = total.detach(), weights.sum(), counted
        return sums

    def _weights(self, losses_R: Tensor, batch: Batch, rows_R: Tensor) -> Tensor:
        """Loss weight of each row, on the device."""
        if self._config.loss.weighting != "dpace":
            return batch.weights_R.to(self._device)
        blocks, size = batch.live_AK.shape
        return pace_weights(losses_R, rows_R, blocks, size, self._config.loss.pace_floor)

    def apply(self, parcels: tuple[Parcel, ...], step: int) -> Tensor:
        """One optimizer step on the mean over all drafters; `metrics.FIELDS` of the step.

        The gradient of the sum is divided by the weights of *all* drafters, so every position
        counts the same wherever it was computed. A gradient that is not finite leaves weights and
        optimizer as they were; that is decided on the device and counted.
        """
        sums = torch.zeros(len(FIELDS), device=self._device)
        self._mean.zero_()
        for parcel in parcels:
            self._mean += parcel.gradient.to(self._device)
            sums += parcel.sums.to(self._device)
        self._mean /= sums[FIELDS.index("weight")].clamp(min=1e-12)
        norm = self._mean.norm()
        skip = (~torch.isfinite(norm)).float()
        self._mean *= (self._config.optim.clip_norm / (norm + 1e-6)).clamp(max=1.0)
        self._update(learning_rate(self._config.optim, step), skip)
        sums[5], sums[6], sums[7] = norm, skip, 1.0
        return sums

    def _update(self, lr: float, skip: Tensor) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        # torch's fused step leaves everything as it was where found_inf is 1, as GradScaler uses it
        self.optimizer.grad_scale, self.optimizer.found_inf = None, skip  # type: ignore[attr-defined]
        self.optimizer.step()

    def weights(self) -> dict[str, Tensor]:
        """Named weights, float32."""
        return self.flat.named_views(self.flat.weights)

    def optimizer_state(self) -> dict[str, Tensor]:
        """Named moments, and the number of updates."""
        states = [self.optimizer.state[p] for g in self.optimizer.param_groups for p in g["params"]]
        found = {"step": states[0]["step"]}
        for moment in ("exp_avg", "exp_avg_sq"):
            vector = torch.cat([state[moment] for state in states])
            views = self.flat.named_views(vector)
            found |= {f"{moment}.{name}": view for name, view in views.items()}
        return found

    @torch.no_grad()
    def load(self, weights: dict[str, Tensor], optimizer_state: dict[str, Tensor]) -> None:
        """Continue from what `weights` and `optimizer_state` returned elsewhere."""
        for name, view in self.weights().items():
            view.copy_(weights[name])
        states = [self.optimizer.state[p] for g in self.optimizer.param_groups for p in g["params"]]
        for moment in ("exp_avg", "exp_avg_sq"):
            vector = torch.empty_like(self.flat.weights)
            for name, view in self.flat.named_views(vector).items():
                view.copy_(optimizer_state[f"{moment}.{name}"])
            states[0][moment].copy_(vector[: self.flat.num_decayed])
            states[1][moment].copy_(vector[self.flat.num_decayed :])
        for state in states:
            state["step"].copy_(optimizer_state["step"])
