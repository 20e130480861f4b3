"""Which tokens of a rendered conversation the assistant wrote, found through its chat template.

Two ways, never a search for markers: the template's own `{% generation %}` blocks; or prefix
differences, the text that a turn adds to the generation prompt it answers. A template for which
neither holds is refused.

A template may show a turn otherwise once another follows (Qwen3 leaves earlier thinking out). The
loss then falls only on turns shown as the target wrote them; each other turn becomes a document of
its own, which ends with it, as it was when the target wrote it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase

from dflash_train.corpus.chat import BadLineError, Conversation
from dflash_train.errors import UsageError

_ANSWER = "It is four."
_PROBE = Conversation(
    messages=(
        {"role": "user", "content": "What is two and two?"},
        {"role": "assistant", "content": _ANSWER},
    )
)


class Way(StrEnum):
    """How the assistant's tokens are found."""

    GENERATION_BLOCKS = "generation blocks of the chat template"
    PREFIX_DIFFERENCES = "prefix differences of the rendered chat template"
    WHOLE_TEXT = "whole text, no chat template"


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """Tokens of a document and where the loss counts."""

    input_ids: list[int]
    is_supervised: list[bool]


class ChatTemplate:
    """A tokenizer's chat template with one way to the assistant's tokens.

    Args:
        tokenizer: a fast one, with offsets.
        options: for every conversation, e.g. `{"enable_thinking": False}`; a line's own come first.
        stop_ids: tokens the target ends a turn with.

    Raises:
        UsageError: no template, or one with which no way is sound; says why.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        options: Mapping[str, object],
        stop_ids: frozenset[int],
    ) -> None:
        self._tokenizer, self._options, self._stop_ids = tokenizer, dict(options), stop_ids
        if not tokenizer.chat_template:
            raise UsageError(
                f"{tokenizer.name_or_path}: tokenizer without a chat template, and the data are"
                " chats",
                hint="give one with --chat-template FILE",
            )
        self.way = self._find_way()
        self._refuse_unheard_options()

    def encode(self, conversation: Conversation) -> list[Encoded]:
        """Documents of a conversation; none where the assistant says nothing.

        Raises:
            BadLineError: the template refuses it, or does not show an answer after its prompt.
        """
        try:
            rendering = _Rendering(self._tokenizer, conversation, self._options)
            return [self._document(rendering, last, turns) for last, turns in rendering.cover()]
        except (TemplateError, TypeError, ValueError, KeyError) as error:
            if isinstance(error, BadLineError):
                raise
            raise BadLineError(f"chat template: {_one_line(error)}") from None

    def _document(self, rendering: _Rendering, last: int, turns: Sequence[int]) -> Encoded:
        if self.way is Way.GENERATION_BLOCKS:
            return self._by_blocks(rendering, last, turns)
        return self._by_prefixes(rendering, last, turns)

    def _by_blocks(self, rendering: _Rendering, last: int, turns: Sequence[int]) -> Encoded:
        coded = rendering.coded_with_mask(last)
        inside = [(len(rendering.before(turn)), len(rendering.upto(turn))) for turn in turns]
        return Encoded(
            input_ids=coded["input_ids"],
            is_supervised=[
                bool(bit) and any(start <= at < end for start, end in inside)
                for bit, (at, _) in zip(
                    coded["assistant_masks"], coded["offset_mapping"], strict=True
                )
            ],
        )

    def _by_prefixes(self, rendering: _Rendering, last: int, turns: Sequence[int]) -> Encoded:
        coded = rendering.coded(last)
        ids, offsets = coded["input_ids"], coded["offset_mapping"]
        is_supervised = [False] * len(ids)
        for turn in turns:
            start, end = len(rendering.prompt(turn)), len(rendering.upto(turn))
            places = [i for i, (at, to) in enumerate(offsets) if start <= at < to <= end]
            for place in self._until_stop(ids, places):
                is_supervised[place] = True
        return Encoded(input_ids=ids, is_supervised=is_supervised)

    def _until_stop(self, ids: list[int], places: list[int]) -> list[int]:
        """`places` up to the last stop token: what a template writes after it no target wrote."""
        stops = [rank for rank, place in enumerate(places) if ids[place] in self._stop_ids]
        return places[: stops[-1] + 1] if stops else places

    def _find_way(self) -> Way:
        """The way that finds exactly the answer in a conversation of two messages.

        Raises:
            UsageError: neither does.
        """
        try:
            rendering = _Rendering(self._tokenizer, _PROBE, self._options)
            if any(rendering.coded_with_mask(1)["assistant_masks"]):
                return Way.GENERATION_BLOCKS
            whole, prompt = rendering.upto(1), rendering.prompt(1)
        except BadLineError as error:
            raise _unsound(str(error)) from None
        except (TemplateError, TypeError, ValueError, KeyError) as error:
            raise _unsound(f"it fails on a question with an answer: {_one_line(error)}") from None
        if _ANSWER not in whole[len(prompt) :] or prompt == rendering.before(1):
            raise _unsound("its generation prompt does not stand before the answer")
        return Way.PREFIX_DIFFERENCES

    def _refuse_unheard_options(self) -> None:
        """Raises UsageError where thinking is asked on or off of a template that knows neither."""
        thinking = self._options.get("enable_thinking")
        if thinking is None:
            return
        both = [
            _Rendering(self._tokenizer, _PROBE, {"enable_thinking": value})
            for value in (True, False)
        ]
        if both[0].prompt(1) == both[1].prompt(1) and both[0].upto(1) == both[1].upto(1):
            raise UsageError(
                "--thinking: the chat template renders the same with enable_thinking on and off",
                hint="leave it out, or give another template with --chat-template FILE",
            )


class _Rendering:
    """One conversation, rendered up to any of its messages; each only once."""

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        conversation: Conversation,
        options: Mapping[str, object],
    ) -> None:
        self._tokenizer = tokenizer
        self._messages = conversation.messages
        self._turns = conversation.turns()
        self._options = {**options, **conversation.template_options}
        self._tools = list(conversation.tools) if conversation.tools else None
        self._known: dict[tuple[int, bool], str] = {}

    def cover(self) -> list[tuple[int, list[int]]]:
        """(last message, turns that count) of each document, in the order of the conversation."""
        open_turns = list(self._turns)
        documents = []
        while open_turns:
            last = open_turns[-1]
            text = self.upto(last)
            turns = [turn for turn in open_turns if text.startswith(self.upto(turn))]
            open_turns = [turn for turn in open_turns if turn not in turns]
            documents.append((last, turns))
        return documents[::-1]

    def upto(self, turn: int) -> str:
        """Everything up to and with message `turn`."""
        return self._text(turn + 1, prompt=False)

    def before(self, turn: int) -> str:
        """Everything before message `turn`, which must go on from there.

        Raises:
            BadLineError: it does not.
        """
        return self._prefix(turn, prompt=False)

    def prompt(self, turn: int) -> str:
        """What the target was given when it wrote message `turn`.

        Raises:
            BadLineError: message `turn` is not shown after that.
        """
        return self._prefix(turn, prompt=True)

    def _prefix(self, turn: int, *, prompt: bool) -> str:
        text, whole = self._text(turn, prompt=prompt), self.upto(turn)
        if not whole.startswith(text):
            same = next(
                i for i, (a, b) in enumerate(zip(text, whole + "\0", strict=False)) if a != b
            )
            raise BadLineError(
                f"the prompt goes on {text[same : same + 24]!r} where the answered turn goes on"
                f" {whole[same : same + 24]!r}: the template shows answers otherwise than they are"
                " asked for"
            )
        return text

    def coded(self, last: int) -> Mapping[str, list]:
        """Tokens and offsets of the document that ends with message `last`."""
        return self._tokenizer(
            self.upto(last), add_special_tokens=False, return_offsets_mapping=True, verbose=False
        )

    def coded_with_mask(self, last: int) -> Mapping[str, list]:
        """The same, with the mask of the template's generation blocks."""
        return self._tokenizer.apply_chat_template(
            list(self._messages[: last + 1]),
            tools=self._tools,
            return_dict=True,
            return_assistant_tokens_mask=True,
            tokenizer_kwargs={"return_offsets_mapping": True, "verbose": False},
            **self._options,
        )

    def _text(self, count: int, *, prompt: bool) -> str:
        if count == 0 and not prompt:
            return ""
        key = count, prompt
        if key not in self._known:
            self._known[key] = self._tokenizer.apply_chat_template(
                list(self._messages[:count]),
                tools=self._tools,
                tokenize=False,
                add_generation_prompt=prompt,
                **self._options,
            )
        return self._known[key]


def _unsound(why: str) -> UsageError:
    return UsageError(
        "chat template: the assistant's tokens cannot be told from it: it has no generation"
        f" blocks, and prefix differences are not sound: {why}",
        hint="give one with {% generation %} blocks: --chat-template FILE",
    )


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
