"""Conversations answered anew by the target, since a drafter learns from the target's own words.

Turns are answered in order, each given the answers before it; each answer is a document of its own:
the prompt's tokens, then exactly the tokens the target gave. A turn that calls a tool stays as the
data have it, as the tool's words that follow belong to it; it is context, never learned from.

Every batch is a function of the part's lines and of the options, and each answer draws from a
stream of its own, so a part broken off goes on at its last whole batch and ends in the same bytes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dflash_train.corpus.chat import BadLineError, Conversation, Form, PlainText, parse_line
from dflash_train.corpus.encode import AnswerOptions, Encoder, Part
from dflash_train.corpus.generate import Answerer, Prompt
from dflash_train.corpus.template import Encoded


class Talk:
    """A conversation whose answers are replaced one after another."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._messages = list(conversation.messages)
        self.is_given_up = False
        roles = [message["role"] for message in self._messages]
        self._open = [
            turn for turn in conversation.turns() if not self._messages[turn].get("tool_calls")
        ]
        if roles[-1] != "assistant":
            self._open.append(len(roles))

    def next_turn(self) -> tuple[int, Conversation] | None:
        """The turn to answer, and all that is said before it."""
        if not self._open:
            return None
        turn = self._open[0]
        return turn, replace(self._conversation, messages=tuple(self._messages[:turn]))

    def answer(self, text: str) -> None:
        """The next turn is answered."""
        turn = self._open.pop(0)
        self._messages[turn : turn + 1] = [{"role": "assistant", "content": text}]

    def give_up(self) -> None:
        """No further turn is asked for."""
        self._open.clear()
        self.is_given_up = True


class Journal:
    """Answers already given in a part, batch by batch, one line each.

    Args:
        file: appended to; what a kill left of a line is cut off.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._known = list(self._read())

    def _read(self) -> Iterator[dict[str, Any]]:
        if not self._file.exists():
            return
        whole = 0
        with self._file.open("rb") as source:
            for line in source:
                if not line.endswith(b"\n"):
                    break
                whole += len(line)
                yield json.loads(line)
        os.truncate(self._file, whole)

    def take(self, prompts: Sequence[Prompt]) -> list[dict[str, Any]] | None:
        """Rows of this batch from before; None, and the rest forgotten, where it is not whole."""
        known, self._known = self._known[: len(prompts)], self._known[len(prompts) :]
        asked = [(one.line, one.turn) for one in prompts]
        if [(one["line"], one["turn"]) for one in known] == asked:
            return known
        self._cut(len(known) + len(self._known))
        self._known = []
        return None

    def _cut(self, count: int) -> None:
        """Forget the last `count` lines."""
        if count:
            lines = self._file.read_bytes().splitlines(keepends=True)
            os.truncate(self._file, sum(map(len, lines[:-count])))

    def add(self, rows: Sequence[dict[str, Any]]) -> None:
        """Keep the answers to one batch."""
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        with self._file.open("ab") as out:
            out.write(text.encode())
            out.flush()
            os.fsync(out.fileno())


def answered_part(
    encoder: Encoder,
    lines: Iterable[tuple[int, bytes]],
    form: Form,
    target: Answerer,
    journal: Journal,
    options: AnswerOptions,
    max_length: int,
) -> Part:
    """Documents of numbered lines, with the target's answers."""
    part, talks = _talks(lines, form)
    found: dict[int, list[Encoded]] = {line: [] for line in talks}
    while prompts := _due(encoder, talks, part, max_length):
        for start in range(0, len(prompts), options.batch_size):
            batch = prompts[start : start + options.batch_size]
            answers = _answers(encoder, target, journal, batch, max_length)
            for one, answer in zip(batch, answers, strict=True):
                talks[one.line].answer(answer["text"])
                part.counts["answered"] += 1
                part.counts["unfinished"] += answer["ids"][-1] not in encoder.stop_ids
                found[one.line].append(_document(one.ids, answer["ids"]))
    for line, documents in found.items():
        if documents or not talks[line].is_given_up:
            encoder.sort_in(part, line, documents)
    part.problems.sort()
    return part


def _answers(
    encoder: Encoder, target: Answerer, journal: Journal, batch: Sequence[Prompt], max_length: int
) -> list[dict[str, Any]]:
    """Rows of the journal for a batch: those kept there, or new ones."""
    rows = journal.take(batch)
    if rows is None:
        rows = [
            {"line": one.line, "turn": one.turn, "ids": ids, "text": _text(encoder, ids)}
            for one, ids in zip(batch, target.answer(batch, max_length), strict=True)
        ]
        journal.add(rows)
    return rows


def _text(encoder: Encoder, ids: list[int]) -> str:
    return str(encoder.tokenizer.decode(ids, skip_special_tokens=True))


def _document(prompt: list[int], answer: list[int]) -> Encoded:
    is_supervised = [False] * len(prompt) + [True] * len(answer)
    return Encoded(input_ids=prompt + answer, is_supervised=is_supervised)


def _talks(lines: Iterable[tuple[int, bytes]], form: Form) -> tuple[Part, dict[int, Talk]]:
    part, talks = Part(), {}
    for number, line in lines:
        part.counts["lines"] += 1
        try:
            parsed = _chat(parse_line(line, form))
        except BadLineError as error:
            part.counts["bad"] += 1
            part.problems.append((number, str(error)))
            continue
        if parsed is None:
            part.counts["empty"] += 1
        else:
            talks[number] = Talk(parsed)
    return part, talks


def _chat(parsed: Conversation | PlainText | None) -> Conversation | None:
    if isinstance(parsed, PlainText):
        raise BadLineError("a text, expected messages: nothing in it can be answered")
    return parsed


def _due(encoder: Encoder, talks: dict[int, Talk], part: Part, max_length: int) -> list[Prompt]:
    """One prompt for each conversation with a turn to answer, the shortest first."""
    due = []
    for line, talk in talks.items():
        asked = talk.next_turn()
        if asked is None:
            continue
        try:
            ids = encoder.prompt_ids(asked[1])
        except BadLineError as error:
            part.counts["bad"] += 1
            part.problems.append((line, str(error)))
            talk.give_up()
            continue
        if len(ids) >= max_length:
            part.counts["long"] += 1
            talk.give_up()
        else:
            due.append(Prompt(line=line, turn=asked[0], ids=ids))
    return sorted(due, key=lambda one: (len(one.ids), one.line))
