"""A frozen target as a source of features: the inner decoder, hooks on the chosen layers.

Letters: B rows, T tokens, D hidden, F = layers * D.
"""

from __future__ import annotations

import copy
import inspect
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import Cache

from dflash_train.errors import DflashError
from dflash_train.target_model import layers_of


class FeatureTarget:
    """One replica of the target on one device.

    Args:
        decoder: inner decoder of a transformers model, no lm_head. Hooks go on a copy of it;
            weights that are on `device` already are shared.
        layer_ids: layers whose *outputs* are taken: hidden_states[id + 1].
        device: where this replica lives.
    """

    def __init__(self, decoder: nn.Module, layer_ids: tuple[int, ...], device: str) -> None:
        self._decoder = _copy_to(decoder, device)
        self._decoder.eval().requires_grad_(requires_grad=False)
        layers = layers_of(self._decoder)
        self._layer_ids, self.device = layer_ids, device
        self._caught: dict[int, Tensor] = {}
        self._turn = threading.Lock()
        """An evaluation uses the replica between two batches of its worker."""
        for index in layer_ids:
            layers[index].register_forward_hook(self._catcher(index))

    def _catcher(self, index: int) -> Callable[[nn.Module, object, object], None]:
        def catch(_module: nn.Module, _args: object, output: object) -> None:
            hidden = output[0] if isinstance(output, tuple) else output
            self._caught[index] = cast("Tensor", hidden)

        return catch

    @property
    def config(self) -> Any:  # noqa: ANN401  (its class varies by family)
        """The decoder's configuration."""
        return self._decoder.config

    @torch.no_grad()
    def extend(self, ids_X: Tensor, cache: Cache) -> tuple[Tensor, Tensor]:
        """The next X tokens of one document over what `cache` holds of it; the cache grows.

        Returns:
            features_XF, and the last hidden states that the lm_head reads, [X, D].
        """
        start = cache.get_seq_length()
        positions = torch.arange(start, start + len(ids_X), device=self.device)[None]
        forward = inspect.signature(self._decoder.forward).parameters
        name = "cache" if "cache" in forward else "past_key_values"  # renamed in transformers 5.2x
        # the caller may work for another GPU, and kernels start on the thread's own
        with self._turn, _on_device(self.device):
            self._caught.clear()
            last: Tensor = self._decoder(
                input_ids=ids_X[None].to(self.device),
                position_ids=positions,
                use_cache=True,
                **{name: cache},
            ).last_hidden_state
            features = torch.cat([self._caught[i] for i in self._layer_ids], dim=-1)
            self._caught.clear()
        return features[0], last[0]

    @property
    def decoder(self) -> nn.Module:
        """The replica itself; for looking at, by the thread that uses it."""
        return self._decoder

    @torch.no_grad()
    def states(self, input_ids_BT: Tensor, attention_BT: Tensor) -> tuple[Tensor, ...]:
        """`hidden_states` as transformers lists them, L + 1 of [B, T, D]; the last is normed."""
        listed: tuple[Tensor, ...] = self._decoder(
            input_ids=input_ids_BT.to(self.device),
            attention_mask=attention_BT.to(self.device),
            output_hidden_states=True,
            use_cache=False,
        ).hidden_states
        self._caught.clear()
        return listed

    @torch.no_grad()
    def features(self, input_ids_BT: Tensor, attention_BT: Tensor) -> Tensor:
        """Outputs of the chosen layers side by side; [B, T, F], zero at padding.

        `no_grad`, not `inference_mode`: a drafter computes gradients with these.
        """
        mask, ids = attention_BT.to(self.device), input_ids_BT.to(self.device)
        with self._turn:
            self._caught.clear()
            self._decoder(input_ids=ids, attention_mask=mask, use_cache=False)
            features_BTF = torch.cat([self._caught[i] for i in self._layer_ids], dim=-1)
            self._caught.clear()
        return features_BTF * mask[:, :, None].to(features_BTF.dtype)


def _copy_to(decoder: nn.Module, device: str) -> nn.Module:
    """The same modules around weights on `device`; no second copy on the way there."""
    memo: dict[int, Any] = {}
    for tensor in (*decoder.parameters(), *decoder.buffers()):
        moved = tensor.detach().to(device)
        is_weight = isinstance(tensor, nn.Parameter)
        memo[id(tensor)] = nn.Parameter(moved, requires_grad=False) if is_weight else moved
    return copy.deepcopy(decoder, memo)


def _on_device(device: str) -> AbstractContextManager[object]:
    return torch.cuda.device(device) if device.startswith("cuda") else nullcontext()


def check_features(features_BTF: Tensor, attention_BT: Tensor) -> None:
    """Refuse features that cannot teach: not finite, all zero, or the same at every token.

    Raises:
        DflashError: what was seen.
    """
    real = features_BTF[attention_BT.to(features_BTF.device).bool()]
    if not bool(torch.isfinite(real).all()):
        raise DflashError("target features: not finite, expected numbers")
    if float(real.abs().max()) == 0.0:
        raise DflashError("target features: all zero, expected hidden states")
    if float(real.std(dim=0).max()) == 0.0:
        raise DflashError("target features: equal at every token, expected hidden states")
