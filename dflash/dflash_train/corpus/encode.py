"""From lines to documents: tokens, loss mask, and what became of each line."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

from jinja2 import TemplateError
from transformers import AutoTokenizer, PreTrainedTokenizerBase
from transformers.utils import logging as transformers_logging

from dflash_train.corpus.chat import BadLineError, Conversation, Form, PlainText, parse_line
from dflash_train.corpus.template import (
    ChatTemplate,
    Encoded,
    Way,
    hears_thinking,
    one_line,
    refuse_without_template,
)
from dflash_train.errors import UsageError


class Long(StrEnum):
    """What becomes of a document longer than allowed."""

    CUT = "cut"
    DROP = "drop"


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerOptions:
    """How the target answers anew; where it runs is no part of it."""

    fingerprint: str
    """Of the target."""
    max_new_tokens: int = 2048
    batch_size: int = 16
    """Prompts answered together; part of the result, as sums run in another order in others."""
    temperature: float = 0.0
    """0: greedy."""
    top_k: int = 0
    """0: all tokens."""
    top_p: float = 1.0
    seed: int = 0
    """With the line and the turn it decides all draws of an answer."""
    dtype: str = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodeOptions:
    """All that decides how a line becomes tokens; hashable, travels to worker processes."""

    tokenizer: str
    """Folder or id."""
    chat_template: str | None = None
    """Template text that stands for the tokenizer's own."""
    thinking: bool | None = None
    """`enable_thinking` for every conversation; None: as the template has it."""
    max_length: int = 3072
    """Tokens of a document; positions of the target bound it."""
    block_size: int = 16
    """Shorter documents hold no whole block and are left out."""
    long: Long = Long.CUT
    answers: AnswerOptions | None = None
    """None: the answers in the data are learned from."""


@dataclass(slots=True, kw_only=True)
class Part:
    """What a run of lines became."""

    documents: list[Encoded] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    """Line of each document."""
    counts: Counter[str] = field(default_factory=Counter)
    """lines, empty, bad, documents, extra (beyond one a line), cut, long, short, unsupervised;
    of the target's answers: answered, unfinished."""
    problems: list[tuple[int, str]] = field(default_factory=list)
    """(line, reason) of each bad line."""


class Encoder:
    """Lines to documents, with one tokenizer.

    Args:
        options: see there.

    Raises:
        UsageError: no such tokenizer, none with offsets, or no sound way through its template.
    """

    def __init__(self, options: EncodeOptions) -> None:
        transformers_logging.set_verbosity_error()  # its warnings are counted and told here
        self._options = options
        self.tokenizer = load_tokenizer(options.tokenizer)
        if options.chat_template is not None:
            self.tokenizer.chat_template = options.chat_template
        self.stop_ids = stop_ids(self.tokenizer, options.tokenizer)
        self._template: ChatTemplate | None = None
        self.template_options = (
            {} if options.thinking is None else {"enable_thinking": options.thinking}
        )

    def chat(self) -> ChatTemplate:
        """The chat template; made when the first chat comes, as text needs none.

        Raises:
            UsageError: it cannot be used.
        """
        if self._template is None:
            self._template = ChatTemplate(self.tokenizer, self.template_options, self.stop_ids)
        return self._template

    def way(self, form: Form, first: bytes) -> Way:
        """How the loss mask of a file is found, judged by its first line that can be read."""
        if self._options.answers is not None:
            refuse_without_template(self.tokenizer)
            return Way.ANSWERED
        try:
            is_text = isinstance(parse_line(first, form), PlainText)
        except BadLineError:
            is_text = False
        return Way.WHOLE_TEXT if is_text else self.chat().way

    def hears_thinking(self) -> bool:
        """Whether the chat template, where there is one, knows `enable_thinking`."""
        return bool(self.tokenizer.chat_template) and hears_thinking(self.tokenizer)

    def prompt_ids(self, conversation: Conversation) -> list[int]:
        """Tokens of a conversation with the prompt for an answer.

        Raises:
            BadLineError: the template refuses it.
        """
        options = {**self.template_options, **conversation.template_options}
        tools = list(conversation.tools) if conversation.tools else None
        try:
            coded = self.tokenizer.apply_chat_template(
                list(conversation.messages),
                tools=tools,
                add_generation_prompt=True,
                return_dict=True,
                **options,
            )
        except (TemplateError, TypeError, ValueError, KeyError) as error:
            raise BadLineError(f"chat template: {one_line(error)}") from None
        return list(coded["input_ids"])

    def part(self, lines: Iterable[tuple[int, bytes]], form: Form) -> Part:
        """Documents of numbered lines, and what became of those that gave none."""
        part = Part()
        for number, line in lines:
            part.counts["lines"] += 1
            try:
                found = self._encode(line, form)
            except BadLineError as error:
                part.counts["bad"] += 1
                part.problems.append((number, str(error)))
                continue
            if found is None:
                part.counts["empty"] += 1
                continue
            self.sort_in(part, number, found)
        return part

    def _encode(self, line: bytes, form: Form) -> list[Encoded] | None:
        parsed = parse_line(line, form)
        if parsed is None:
            return None
        if not isinstance(parsed, PlainText):
            return self.chat().encode(parsed)
        coded = self.tokenizer(parsed.text, verbose=False, return_special_tokens_mask=True)
        is_word = [not bit for bit in coded["special_tokens_mask"]]
        return [Encoded(input_ids=coded["input_ids"], is_supervised=is_word)]

    def sort_in(self, part: Part, number: int, found: Sequence[Encoded]) -> None:
        """Take the documents of a line into `part`, or count why not."""
        part.counts["extra"] += max(0, len(found) - 1)
        if not found:
            part.counts["unsupervised"] += 1
        for document in found:
            fate, kept = fit(document, self._options)
            if fate is not None:
                part.counts[fate] += 1
            if kept is not None:
                part.documents.append(kept)
                part.lines.append(number)
                part.counts["documents"] += 1


def fit(document: Encoded, options: EncodeOptions) -> tuple[str | None, Encoded | None]:
    """What is said of a document (`cut`, `long`, `short`, `unsupervised` or None), and what stays.

    Supervised means that a block can start: a token and the next of which both count.
    """
    ids, mask = document.input_ids, document.is_supervised
    is_long = len(ids) > options.max_length
    if is_long and options.long is Long.DROP:
        return "long", None
    if len(ids) < options.block_size:
        return "short", None
    ids, mask = ids[: options.max_length], mask[: options.max_length]
    if not any(a and b for a, b in pairwise(mask[1:])):
        return "unsupervised", None
    return ("cut" if is_long else None), Encoded(input_ids=ids, is_supervised=mask)


@lru_cache(maxsize=1)
def encoder(options: EncodeOptions) -> Encoder:
    """The encoder of this process for these options; made once."""
    return Encoder(options)


def load_tokenizer(path: str) -> PreTrainedTokenizerBase:
    """A tokenizer with offsets.

    Raises:
        UsageError: none there, or a slow one.
    """
    try:
        tokenizer = AutoTokenizer.from_pretrained(path)
    except Exception as error:  # the Rust side raises Exception itself
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise UsageError(
            f"--tokenizer {path}: no tokenizer can be read there: {lines[0]}",
            hint="give a folder with tokenizer.json, or an id of the hub",
        ) from error
    if not tokenizer.is_fast:
        raise UsageError(
            f"--tokenizer {path}: a slow tokenizer, expected one with offsets (tokenizer.json)"
        )
    return tokenizer


def stop_ids(tokenizer: PreTrainedTokenizerBase, path: str) -> frozenset[int]:
    """What ends a turn: the tokenizer's end of text and those of `generation_config.json`."""
    found = {tokenizer.eos_token_id}
    file = Path(path) / "generation_config.json"
    if file.is_file():
        try:
            given = json.loads(file.read_text(encoding="utf-8")).get("eos_token_id")
        except (OSError, ValueError, AttributeError):
            given = None
        found |= set(given) if isinstance(given, list) else {given}
    return frozenset(one for one in found if isinstance(one, int))


def tokenizer_hash(tokenizer: PreTrainedTokenizerBase) -> str:
    """sha256 over all that turns text into tokens; truncation and padding are no part of it."""
    state = json.loads(tokenizer.backend_tokenizer.to_str())
    state.pop("truncation", None)
    state.pop("padding", None)
    text = json.dumps(state, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()
