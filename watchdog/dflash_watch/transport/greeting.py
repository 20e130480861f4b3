"""What an agent says, read: its first words, records, and kinds of records not known here.

Versions of agent and watcher may differ: records only gain fields, a field or a kind of record that
is not known here is passed over, and the protocol number rises when something known changes its
meaning. Both sides name the highest and the lowest number that they speak.
"""

from __future__ import annotations

import msgspec

from dflash_watch.frame import (
    PROTOCOL,
    PROTOCOL_MIN,
    Frame,
    Hello,
    HostFrame,
    StackSample,
    kind_not_known,
)
from dflash_watch.transport.base import Reason, TransportError


class Reply(msgspec.Struct, frozen=True, tag_field="type", tag="reply"):
    """Answer to a request (docs/frames.md)."""

    id: int
    ok: bool
    error: str | None = None


Word = Hello | Frame | HostFrame | StackSample | Reply
_DECODER: msgspec.json.Decoder[Word] = msgspec.json.Decoder(Word)


def read_word(data: bytes, where: str) -> Word | str:
    """One record; of a kind that is not known here only the name of that kind.

    Raises:
        TransportError: no record at all.
    """
    try:
        return _DECODER.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        kind = kind_not_known(data)
        if kind is not None:
            return kind
        text = f"{where}: the agent sent what is no record: {error}"
        raise TransportError(Reason.AGENT_FAILED, text) from error


def agree(hello: Hello, sha256: str, where: str) -> int:
    """The protocol both sides speak: the highest one that they have in common.

    Args:
        hello: the agent's first record.
        sha256: of the code that was sent, hex.
        where: the place, for people.

    Raises:
        TransportError: they have none in common, or other code runs there than was sent.
    """
    lowest = max(PROTOCOL_MIN, hello.protocol_min)
    highest = min(PROTOCOL, hello.protocol)
    if lowest > highest:
        raise TransportError(
            Reason.AGENT_FAILED,
            f"{where}: agent {hello.agent_version} speaks protocol"
            f" {_span(hello.protocol_min, hello.protocol)}, this watcher"
            f" {_span(PROTOCOL_MIN, PROTOCOL)}",
            hint="update the older of the two",
        )
    _, _, short = hello.agent_version.partition("+")
    runs = hello.code_sha256 or short
    if runs and not sha256.startswith(runs):
        raise TransportError(
            Reason.AGENT_FAILED,
            f"{where}: other code runs there than was sent: sha256 {runs[:12]}, sent {sha256[:12]}",
            hint="something on the way changes what passes through it",
        )
    return highest


def _span(lowest: int, highest: int) -> str:
    return str(highest) if lowest == highest else f"{lowest} to {highest}"
