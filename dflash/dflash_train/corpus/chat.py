"""One line of a data file as a conversation or a text; knows no tokenizer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

ROLE_NAMES = {"human": "user", "gpt": "assistant", "chatgpt": "assistant", "bard": "assistant"}
"""Roles of the `conversations` form, in the words of chat templates."""
_THINKING = "enable_thinking"


class BadLineError(ValueError):
    """A line that cannot be learned from; its text is the reason, for a person."""


class Form(StrEnum):
    """How the lines of a file are read."""

    JSON_LINES = "json lines"
    TEXT_LINES = "text lines"


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """Messages as a chat template takes them."""

    messages: tuple[dict[str, object], ...]
    tools: tuple[dict[str, object], ...] | None = None
    template_options: Mapping[str, object] = field(default_factory=dict)
    """What this line alone tells the template, e.g. `enable_thinking`."""

    def turns(self) -> tuple[int, ...]:
        """Places of the assistant's messages that answer something."""
        roles = [message["role"] for message in self.messages]
        return tuple(i for i, role in enumerate(roles) if i and role == "assistant")


@dataclass(frozen=True, slots=True)
class PlainText:
    """A text that is learned from as a whole."""

    text: str


def parse_line(line: bytes, form: Form) -> Conversation | PlainText | None:
    """What a line says; None for an empty one.

    JSON lines are objects with `messages` (`role`, `content`), the older `conversations` (`from`,
    `value`) or `text`; beside messages `tools`, `enable_thinking` and `chat_template_kwargs`.

    Raises:
        BadLineError: says what was seen and what is expected.
    """
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadLineError(f"not UTF-8 at byte {error.start}") from None
    if not text.strip():
        return None
    if form is Form.TEXT_LINES:
        return PlainText(text.rstrip("\r\n"))
    try:
        record = json.loads(text.strip())
    except json.JSONDecodeError as error:
        raise BadLineError(f"not JSON: {error.msg} at column {error.colno}") from None
    except RecursionError:
        raise BadLineError("not JSON: nested too deeply") from None
    if not isinstance(record, dict):
        raise BadLineError(f"{_kind(record)}, expected an object")
    if isinstance(record.get("text"), str) and "messages" not in record:
        return PlainText(record["text"])
    return _conversation(record)


def _conversation(record: Mapping[str, object]) -> Conversation:
    if "messages" in record:
        messages = _messages(record["messages"])
    elif "conversations" in record:
        messages = tuple(map(_renamed, _listed("conversations", record["conversations"])))
    else:
        keys = ", ".join(sorted(record)[:6]) or "none"
        raise BadLineError(f"keys {keys}; expected messages, conversations or text")
    options = record.get("chat_template_kwargs") or {}
    if not isinstance(options, dict):
        raise BadLineError(f"chat_template_kwargs: {_kind(options)}, expected an object")
    if isinstance(record.get(_THINKING), bool):
        options = {**options, _THINKING: record[_THINKING]}
    return Conversation(
        messages=messages, tools=_tools(record.get("tools")), template_options=options
    )


def _messages(value: object) -> tuple[dict[str, object], ...]:
    messages = _listed("messages", value)
    for place, message in enumerate(messages):
        if not isinstance(message.get("role"), str):
            raise BadLineError(f"messages[{place}]: no role")
        content = message.get("content")
        is_call = content is None and bool(message.get("tool_calls"))
        if not (is_call or isinstance(content, (str, list))):
            raise BadLineError(f"messages[{place}].content: {_kind(content)}, expected text")
    return messages


def _listed(name: str, value: object) -> tuple[dict[str, object], ...]:
    if isinstance(value, str):  # some exports keep the list as JSON in a string
        value = _unpacked(name, value)
    if not isinstance(value, list) or not value:
        seen = "an empty list" if isinstance(value, list) else _kind(value)
        raise BadLineError(f"{name}: {seen}, expected a list of messages")
    for place, one in enumerate(value):
        if not isinstance(one, dict):
            raise BadLineError(f"{name}[{place}]: {_kind(one)}, expected an object")
    return tuple(value)


def _renamed(message: Mapping[str, object]) -> dict[str, object]:
    role, text = message.get("from"), message.get("value")
    if not isinstance(role, str) or not isinstance(text, str):
        raise BadLineError("conversations: a message without from or value")
    return {"role": ROLE_NAMES.get(role, role), "content": text}


def _tools(value: object) -> tuple[dict[str, object], ...] | None:
    if isinstance(value, str):
        value = _unpacked("tools", value) if value.strip() else None
    if value is None or value == []:
        return None
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise BadLineError(f"tools: {_kind(value)}, expected a list of JSON schemas")
    return tuple(value)


def _unpacked(name: str, value: str) -> object:
    try:
        return json.loads(value)
    except json.JSONDecodeError:
        raise BadLineError(f"{name}: text that is not JSON") from None


def _kind(value: object) -> str:
    names = {type(None): "null", str: "text", list: "a list", dict: "an object", bool: "true/false"}
    return names.get(type(value), "a number")
