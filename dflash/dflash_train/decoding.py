"""Draft-and-verify decoding, greedy: what a server does with a drafter, for one document.

The output is the target's own greedy output whatever the drafter says; the drafter decides only in
how few passes it comes. Letters: X tokens fed, F features, D hidden, K block positions.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from dflash_train.draft import Draft
from dflash_train.errors import DflashError
from dflash_train.targets import FeatureTarget


class CachedTarget:
    """One document in the target: keys, values and states of what was fed, and a way back.

    Keys and values can be cut off. States of linear attention, and windows that have dropped their
    oldest, cannot: they are kept from before a block, and what was accepted is fed again.

    Args:
        target: a replica, used by one thread at a time.
        head_VD: the target's lm_head.
    """

    def __init__(self, target: FeatureTarget, head_VD: Tensor) -> None:
        self._target, self._head_VD = target, head_VD
        self._cache = DynamicCache(config=target.config)
        self._can_cut = all(type(layer) is DynamicLayer for layer in self._cache.layers)
        self._before: list[object] = []
        self._fed = torch.empty(0, dtype=torch.long)
        self.passes = 0
        """Forward passes of the target so far."""

    def feed(self, ids_X: Tensor) -> tuple[Tensor, Tensor]:
        """The next tokens of the document.

        Returns:
            features_XF, and best_X: what the target says after each of them, int64 on the CPU.
        """
        if not self._can_cut:
            self._before = [_kept(layer) for layer in self._cache.layers]
        self._fed = ids_X
        self.passes += 1
        features, last = self._target.extend(ids_X, self._cache)
        head = self._head_VD
        logits = functional.linear(last.to(head.device, head.dtype), head)
        return features, logits.argmax(dim=1).cpu()

    def keep(self, count: int) -> None:
        """Forget all but the first `count` of the tokens fed last."""
        surplus = len(self._fed) - count
        if not surplus:
            return
        if self._can_cut:
            self._cache.crop(-surplus)
            return
        self._cache.layers = self._before
        self.feed(self._fed[:count])


def _kept(layer: object) -> object:
    """A layer of a cache as it is now; keys and values are replaced when they grow, not changed."""
    return copy.copy(layer) if type(layer) is DynamicLayer else copy.deepcopy(layer)


def check_continuation(target: FeatureTarget, head_VD: Tensor, ids_X: Tensor) -> None:
    """Refuse a target whose cache does not go on with several tokens at once.

    Raises:
        DflashError: two pieces give other features than the whole.
    """
    whole, _ = CachedTarget(target, head_VD).feed(ids_X)
    pieces, half = CachedTarget(target, head_VD), len(ids_X) // 2
    parts = torch.cat([pieces.feed(ids_X[:half])[0], pieces.feed(ids_X[half:])[0]])
    apart = float((parts - whole).float().norm() / whole.float().norm().clamp(min=1e-9))
    if apart > 0.05:  # bfloat16 stays below 0.02; a state that was lost is of order 1
        raise DflashError(
            f"target: {len(ids_X)} tokens in two pieces give features {apart:.0%} apart from those"
            " of one piece: its cache does not go on with several tokens at once",
            hint="transformers 5.24 or newer",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """One document's greedy continuation and how it came about."""

    tokens: tuple[int, ...]
    """What was generated, the end token included."""
    accepted: tuple[int, ...]
    """Drafted tokens accepted in each verify step, 0 to K - 1."""
    passes: int
    """Forward passes of the target after the prompt's: verify steps and repeats."""


def decode(
    target: CachedTarget,
    draft: Draft,
    prompt_X: Tensor,
    max_tokens: int,
    end_ids: frozenset[int],
    on_step: Callable[[], None],
) -> Decoded:
    """Greedy continuation of a prompt, a block at a time.

    Args:
        target: fresh.
        draft: the drafter.
        prompt_X: int64.
        max_tokens: of the continuation; the last step counts in full although it is cut.
        end_ids: tokens that end it.
        on_step: called after each verify step; may raise to stop.
    """
    features, best = target.feed(prompt_X)
    first_passes = target.passes
    context = draft.begin()
    draft.extend(context, features)
    tokens = [int(best[-1])]
    accepted: list[int] = []
    while len(tokens) < max_tokens and tokens[-1] not in end_ids:
        block = draft.block(context, tokens[-1])
        features, best = target.feed(block)
        count = int((block[1:] == best[:-1]).long().cumprod(dim=0).sum())
        new = [*block[1 : count + 1].tolist(), int(best[count])]
        ends = next((place for place, token in enumerate(new) if token in end_ids), count)
        tokens += new[: ends + 1]
        accepted.append(ends)
        target.keep(ends + 1)
        draft.extend(context, features[: ends + 1])
        on_step()
    return Decoded(
        tokens=tuple(tokens[:max_tokens]),
        accepted=tuple(accepted),
        passes=target.passes - first_passes,
    )
