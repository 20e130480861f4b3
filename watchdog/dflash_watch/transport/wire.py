"""Framing of the agent's wire (docs/frames.md): pure, both directions, hostile bytes expected."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator
from typing import Any

import msgspec

from dflash_watch.transport.base import Reason, TransportError

_NOISE_BYTES = 4096
_MAX_PACKED = 16 << 20
_MAX_RECORD = 64 << 20
_MAX_HEADER = 64


class WireReader:
    """Bytes of standard output in, JSON of one record each out.

    What stands before or between messages is noise; its first 4 KiB are kept for the error message.
    """

    def __init__(self, nonce: str) -> None:
        self._mark = b"\nDFLASH " + nonce.encode() + b" "
        self._header = re.compile(re.escape(self._mark) + rb"(\d{1,18}) (\d{1,9})\n")
        self._buffer = bytearray(b"\n")  # so that a message at the very start has its line start
        self._inflate = zlib.decompressobj()
        self._expected: int | None = None
        self._noise = b""
        self.dropped = 0
        """Sequence numbers that never came."""

    @property
    def noise(self) -> bytes:
        """What was no message; before the first one, the end that might still become one too."""
        rest = b"" if self._expected is not None else bytes(self._buffer)
        return (self._noise + rest)[:_NOISE_BYTES]

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Whole records that `data` completes.

        Raises:
            TransportError: the stream cannot be what an agent sends.
        """
        self._buffer += data
        while (packed := self._next()) is not None:
            yield self._unpack(packed)

    def _next(self) -> bytes | None:
        start = self._buffer.find(self._mark)
        if start < 0:
            self._skip(len(self._buffer) - len(self._mark))
            return None
        self._skip(start)
        header = self._header.match(self._buffer)
        if header is None:
            self._check_terminal()
            if len(self._buffer) > len(self._mark) + _MAX_HEADER:
                raise _broken("a header that is none")
            return None
        size = int(header[2])
        if size > _MAX_PACKED:
            raise _broken(f"a record of {size} bytes")
        if len(self._buffer) < header.end() + size:
            return None
        seq, start = int(header[1]), header.end()  # before the buffer that they point into moves
        packed = bytes(self._buffer[start : start + size])
        del self._buffer[: start + size]
        self.dropped += max(seq - (seq if self._expected is None else self._expected), 0)
        self._expected = seq + 1
        return packed

    def _unpack(self, packed: bytes) -> bytes:
        try:
            record = self._inflate.decompress(packed, _MAX_RECORD)
        except zlib.error as error:
            raise _broken(f"{error}") from error
        if self._inflate.unconsumed_tail:
            raise _broken("a record of more than 64 MiB")
        return record

    def _skip(self, count: int) -> None:
        if count <= 0:
            return
        self._noise = (self._noise + bytes(self._buffer[:count]))[:_NOISE_BYTES]
        del self._buffer[:count]

    def _check_terminal(self) -> None:
        """A terminal turns each line end into CR LF, and the packed bytes with it."""
        head = bytes(self._buffer[: len(self._mark) + _MAX_HEADER])
        if head.startswith(self._mark) and b"\r\n" in head:
            raise TransportError(
                Reason.ENTRY_FAILED,
                "a terminal stands between here and the agent and changes its bytes",
                hint="leave out -t in the prefix (ssh -T, docker exec -i)",
            )


def render_request(request: dict[str, Any]) -> bytes:
    """One request to the agent: its size, a line end, JSON."""
    body = msgspec.json.encode(request)
    return b"%d\n%b" % (len(body), body)


def render_start(program: bytes, config: dict[str, Any]) -> bytes:
    """What the stub reads first: both sizes, the program, the configuration."""
    # Not msgspec: a path of undecodable bytes travels as the escapes that Python makes of it.
    body = json.dumps(config).encode()
    return b"%d %d\n%b%b" % (len(program), len(body), program, body)


def _broken(what: str) -> TransportError:
    return TransportError(
        Reason.LOST, f"the agent's stream is damaged: {what}", hint="something else writes into it"
    )
