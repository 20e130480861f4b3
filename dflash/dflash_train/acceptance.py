"""How much of what is drafted is accepted: measured in decoding, and estimated as training does.

Letters: A blocks, K block positions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from dflash_train.config import Config
from dflash_train.data import Batch, Document, assemble, pad
from dflash_train.decoding import Decoded
from dflash_train.draft import Draft
from dflash_train.metrics import correct_prefix
from dflash_train.targets import FeatureTarget


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """Verify steps of some documents, counted."""

    histogram: tuple[int, ...]
    """Steps by the number of drafted tokens accepted, 0 to K - 1."""
    passes: int
    """Forward passes of the target behind the prompts: verify steps and repeats."""

    @property
    def steps(self) -> int:
        """Verify steps."""
        return sum(self.histogram)

    @property
    def tokens(self) -> int:
        """Tokens that verify steps gave: those accepted, and the target's own after them."""
        return sum((count + 1) * steps for count, steps in enumerate(self.histogram))

    @property
    def length(self) -> float | None:
        """Acceptance length: tokens of a verify step, 1 to K; None without a step."""
        return self.tokens / self.steps if self.steps else None

    @property
    def tokens_per_pass(self) -> float | None:
        """Tokens of a target pass; lower than `length` where accepted tokens are fed again."""
        return self.tokens / self.passes if self.passes else None

    @property
    def by_position(self) -> tuple[float, ...]:
        """Share of steps in which drafted position 1, 2, ... K - 1 was accepted."""
        late = [sum(self.histogram[place:]) for place in range(1, len(self.histogram))]
        return tuple(count / self.steps for count in late) if self.steps else ()


def count_steps(decoded: Iterable[Decoded], block_size: int) -> Acceptance:
    """All verify steps of some documents together."""
    histogram = [0] * block_size
    passes = 0
    for one in decoded:
        passes += one.passes
        for count in one.accepted:
            histogram[count] += 1
    return Acceptance(histogram=tuple(histogram), passes=passes)


def walk(draft: Draft, target: FeatureTarget, document: Document) -> tuple[int, ...]:
    """Drafted tokens that a text would let pass, block by block, as training computes them.

    Features of the whole document at once, all blocks under the mask, the text's own tokens as
    answers; then from anchor to anchor as decoding goes: each stands behind what the last let pass.
    (A mean over random anchors is no such estimate: it counts easy stretches once a token, while
    decoding is through them in few steps.)

    Returns:
        0 to K - 1 for each step whose block lies within the document.
    """
    size = draft.block_size
    last = len(document.tokens) - size
    if document.prompt_length > last:
        return ()
    rows = pad([document], padded_length(draft.config, len(document.tokens)))
    features = target.features(rows.input_ids_BT, rows.attention_BT)
    prefixes: dict[int, int] = {}
    count = draft.config.loss.num_anchors
    for first in range(document.prompt_length, last + 1, count):
        anchors = torch.arange(first, first + count)
        valid = anchors <= last
        batch = assemble(draft.config, -2, rows, torch.where(valid, anchors, 0)[None], valid[None])
        found = _prefixes(draft, batch, features).tolist()
        prefixes |= dict(zip(anchors.tolist(), found, strict=True))
    steps = []
    anchor = document.prompt_length
    while anchor <= last:
        steps.append(prefixes[anchor])
        anchor += prefixes[anchor] + 1
    return tuple(steps)


def padded_length(config: Config, length: int) -> int:
    """The bucket that holds `length` tokens, or `length` where none does."""
    return next((bucket for bucket in config.data.buckets if bucket >= length), length)


def mean_length(steps: Iterable[tuple[int, ...]]) -> float | None:
    """Acceptance length of some walks, 1 to K; None without a step."""
    every = [count for one in steps for count in one]
    return 1.0 + sum(every) / len(every) if every else None


def _prefixes(draft: Draft, batch: Batch, features_BTF: Tensor) -> Tensor:
    rows = batch.rows_R.to(draft.device)
    best_R = draft.best(draft.hidden(batch, features_BTF).flatten(0, 1)[rows])
    correct_R = best_R == batch.labels_R.to(draft.device)
    return correct_prefix(correct_R, rows, *batch.live_AK.shape)
