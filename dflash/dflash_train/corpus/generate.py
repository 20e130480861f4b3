"""The target writing answers: batches through `generate` with its cache, a stream of draws each."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from transformers import (
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from dflash_train import streams
from dflash_train.config import TargetConfig
from dflash_train.corpus.encode import AnswerOptions
from dflash_train.devices import use_device
from dflash_train.errors import DflashError, UsageError
from dflash_train.oom import asked_for
from dflash_train.target_model import load_target

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """What one answer is asked for with."""

    line: int
    turn: int
    """Place of the answer among the messages."""
    ids: list[int]


class Answerer:
    """The target on one device.

    Args:
        path: folder or id of the target.
        options: see there.
        device: where it runs.
        stop_ids: tokens that end an answer.

    Raises:
        UsageError: it cannot be loaded, or nothing ends an answer.
    """

    def __init__(
        self, path: str, options: AnswerOptions, device: str, stop_ids: frozenset[int]
    ) -> None:
        self._options, self._device, self._stop_ids = options, device, stop_ids
        if not stop_ids:
            raise UsageError(
                f"--target {path}: no end of text in its tokenizer or generation_config.json",
                hint="set eos_token there, or no answer ends",
            )
        use_device(device)
        if device == "cpu":
            torch.set_num_threads(1)  # sums do not depend on the cores there are; cpux4 uses four
        wanted = TargetConfig(path=path, devices=(device,), dtype=options.dtype)
        self._model: Any = load_target(wanted).to(device)
        self._pad = min(stop_ids)
        self._model.generation_config = GenerationConfig(
            do_sample=False,
            eos_token_id=sorted(stop_ids),
            pad_token_id=self._pad,
            use_cache=True,
        )

    def answer(self, prompts: Sequence[Prompt], max_length: int) -> list[list[int]]:
        """Tokens of each answer, its stop token included.

        A batch for which there is no room is answered in halves.

        Args:
            prompts: together in one batch, padded on the left.
            max_length: of a prompt with its answer; a longer answer is cut later.

        Raises:
            DflashError: not even one answer has room.
        """
        try:
            return self._together(prompts, max_length)
        except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
            amount = asked_for(error)
            if amount is None:
                raise
            if len(prompts) == 1:
                raise DflashError(
                    f"out of memory on {self._device}: {amount} more for one answer to line"
                    f" {prompts[0].line}, a prompt of {len(prompts[0].ids)} tokens",
                    hint="a smaller --max-length, or a larger device",
                ) from error
        half = len(prompts) // 2
        logger.warning("%d answers have no room on %s: halved", len(prompts), self._device)
        return self.answer(prompts[:half], max_length) + self.answer(prompts[half:], max_length)

    def _together(self, prompts: Sequence[Prompt], max_length: int) -> list[list[int]]:
        longest = max(len(one.ids) for one in prompts)
        room = max_length - min(len(one.ids) for one in prompts)
        ids = torch.full((len(prompts), longest), self._pad)
        attention = torch.zeros_like(ids)
        for row, one in enumerate(prompts):
            ids[row, longest - len(one.ids) :] = torch.tensor(one.ids)
            attention[row, longest - len(one.ids) :] = 1
        with torch.no_grad():
            given = self._model.generate(
                input_ids=ids.to(self._device),
                attention_mask=attention.to(self._device),
                max_new_tokens=max(1, min(self._options.max_new_tokens, room)),
                logits_processor=self._draws(prompts),
            )
        return [self._until_stop(row) for row in given[:, longest:].tolist()]

    def _until_stop(self, tokens: list[int]) -> list[int]:
        ends = (place for place, token in enumerate(tokens) if token in self._stop_ids)
        return tokens[: next(ends, len(tokens)) + 1]

    def _draws(self, prompts: Sequence[Prompt]) -> LogitsProcessorList:
        """What turns the largest logit into a sample; nothing for greedy answers."""
        options = self._options
        found = LogitsProcessorList()
        if options.temperature > 0:
            found.append(TemperatureLogitsWarper(options.temperature))
            if options.top_k:
                found.append(TopKLogitsWarper(options.top_k))
            if options.top_p < 1:
                found.append(TopPLogitsWarper(options.top_p))
            found.append(GumbelNoise(prompts, options.seed, self._device))
        return found


class GumbelNoise(LogitsProcessor):
    """Adds to each row noise of its own with which the largest logit is a draw from the softmax.

    Args:
        prompts: of the rows.
        seed: with line and turn of a prompt it decides all draws of its row.
        device: of the logits.
    """

    def __init__(self, prompts: Sequence[Prompt], seed: int, device: str) -> None:
        self._streams = []
        for one in prompts:
            start = streams.generator(seed, "answer", one.line, one.turn).initial_seed()
            self._streams.append(torch.Generator(device).manual_seed(start))

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Noisy scores [B, V], float32."""
        del input_ids
        noise = torch.empty_like(scores, dtype=torch.float32)
        for row, stream in zip(noise, self._streams, strict=True):
            row.exponential_(generator=stream)
        return scores.float() - noise.clamp_min(1e-30).log()


@lru_cache(maxsize=1)
def answerer(path: str, options: AnswerOptions, device: str, stop_ids: frozenset[int]) -> Answerer:
    """The target of this process; loaded once."""
    return Answerer(path, options, device, stop_ids)
