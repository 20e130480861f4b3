"""True acceptance on held-out prompts, beside the estimates that training makes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from dflash_train.acceptance import Acceptance, count_steps, mean_length, walk
from dflash_train.config import Config
from dflash_train.data import Document
from dflash_train.decoding import CachedTarget, Decoded, check_continuation, decode
from dflash_train.draft import Draft
from dflash_train.errors import UsageError
from dflash_train.targets import FeatureTarget

GAP_RATIO, LEAST_GAIN = 0.7, 0.5
"""A gap worth a warning, as the watchdog's `acceptance-gap` counts it: below this share of the
tokens that the estimate gains a step, and a gain of at least that; less is noise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """One look at a drafter."""

    acceptance: Acceptance
    estimate: float | None
    """What training's own computation expects on the held-out text."""
    estimate_own: float | None
    """The same on what the target generated here: equal to the acceptance but for near ties."""
    prompts: int
    seconds: float

    def __str__(self) -> str:
        """One line for a log."""
        shares = " ".join(f"{share:.2f}" for share in self.acceptance.by_position)
        return (
            f"accepted={_number(self.acceptance.length)} of {len(self.acceptance.histogram)}"
            f" estimate={_number(self.estimate)} on-own-words={_number(self.estimate_own)}"
            f" by-position={shares} per-pass={_number(self.acceptance.tokens_per_pass)}"
            f" ({self.prompts} prompts, {self.acceptance.tokens} tokens, {self.seconds:.1f} s)"
        )

    @property
    def has_gap(self) -> bool:
        """True acceptance is far below the estimate."""
        length, estimate = self.acceptance.length, self.estimate
        if length is None or estimate is None or estimate - 1 < LEAST_GAIN:
            return False
        return length - 1 < GAP_RATIO * (estimate - 1)

    @property
    def cause(self) -> str:
        """What a gap points to, one line."""
        length, own = self.acceptance.length, self.estimate_own
        if length is None or own is None or length - 1 >= GAP_RATIO * (own - 1):
            return (
                "on the target's own words the estimate agrees: the data are not its words;"
                " regenerate them with the target"
            )
        return (
            "also on the target's own words: training sees what decoding does not; look for a leak"
            " or shifted features"
        )


class Evaluator:
    """Decodes held-out prompts; uses no randomness but its own, so training does not notice.

    Args:
        config: `eval`, block, buckets, seed.
        target: a replica; its own worker may go on using it.
        draft: the drafter as it stands.
        documents: held out; the first `eval.prompts` of them are used.

    Raises:
        UsageError: nothing to evaluate on.
        DflashError: the target cannot go on from a cache.
    """

    def __init__(
        self,
        config: Config,
        target: FeatureTarget,
        draft: Draft,
        documents: Sequence[Document],
    ) -> None:
        self._config, self._target, self._draft = config, target, draft
        self._documents = [
            first_turn(document)
            for document in documents[: config.eval.prompts]
            if 0 < document.prompt_length < len(document.tokens)
        ]
        if not self._documents:
            raise UsageError(
                f"evaluation: none of {len(documents)} documents has a prompt and a response"
            )
        first = torch.tensor(self._documents[0].tokens)
        check_continuation(target, draft.head_VD, first)

    def run(self, on_step: Callable[[], None]) -> Evaluation:
        """Decode all prompts.

        Args:
            on_step: called after each verify step; may raise to stop.
        """
        start_s = time.perf_counter()
        decoded = [self._decode(document, on_step) for document in self._documents]
        own = [
            Document((*prompt_of(document), *one.tokens), document.prompt_length)
            for document, one in zip(self._documents, decoded, strict=True)
        ]
        return Evaluation(
            acceptance=count_steps(decoded, self._draft.block_size),
            estimate=self._estimate(self._documents, on_step),
            estimate_own=self._estimate(own, on_step),
            prompts=len(self._documents),
            seconds=time.perf_counter() - start_s,
        )

    def _decode(self, document: Document, on_step: Callable[[], None]) -> Decoded:
        return decode(
            CachedTarget(self._target, self._draft.head_VD),
            self._draft,
            torch.tensor(prompt_of(document)),
            self._config.eval.new_tokens,
            end_ids(self._target),
            on_step,
        )

    def _estimate(self, documents: Sequence[Document], on_step: Callable[[], None]) -> float | None:
        """Over as much of each text as decoding goes through."""
        reach = self._config.eval.new_tokens + self._draft.block_size
        walks = []
        for document in documents:
            on_step()
            cut = Document(
                document.tokens[: document.prompt_length + reach], document.prompt_length
            )
            walks.append(walk(self._draft, self._target, cut))
        return mean_length(walks)


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.2f}"


def first_turn(document: Document) -> Document:
    """A document up to the end of its first response."""
    mask = document.mask()[document.prompt_length :]
    length = mask.index(False) if False in mask else len(mask)
    return Document(document.tokens[: document.prompt_length + length], document.prompt_length)


def prompt_of(document: Document) -> tuple[int, ...]:
    """What stands before the response."""
    return document.tokens[: document.prompt_length]


def end_ids(target: FeatureTarget) -> frozenset[int]:
    """Tokens that end a text, as the target's configuration names them."""
    found = target.config.eos_token_id
    if found is None:
        return frozenset()
    return frozenset(found if isinstance(found, (list, tuple)) else (found,))
