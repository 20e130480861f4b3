"""The agent's end of the wire: docs/frames.md.

Records leave through one continuous zlib stream, so one that has been compressed must be sent: the
question whether the other side still reads comes before (`ready`), and the loop leaves out the
whole look when it does not. Nothing here ever waits.
"""

from __future__ import annotations

import json
import math
import os
import zlib
from typing import Any, Dict, Iterator, List, Optional, Tuple

MAX_REQUEST_BYTES = 64 * 1024 * 1024
MAX_WAITING_BYTES = 8 * 1024 * 1024


class WireError(ValueError):
    """The other side broke the protocol, or is gone."""


class Sender:
    """Records out; what the pipe does not take now waits here, in order."""

    def __init__(self, descriptor: int, nonce: str) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._nonce = nonce
        self._deflate = zlib.compressobj(6)
        self._waiting = bytearray()
        self._seq = 0

    @property
    def ready(self) -> bool:
        """Everything sent so far has been taken: a new frame may be built."""
        return not self._waiting

    def send(self, record: Dict[str, Any]) -> None:
        """Queue one record and push what goes.

        Raises:
            WireError: nobody is there any more, or has read nothing for megabytes.
        """
        packed = self._deflate.compress(encode(record))
        packed += self._deflate.flush(zlib.Z_SYNC_FLUSH)
        self._seq += 1
        head = f"\nDFLASH {self._nonce} {self._seq} {len(packed)}\n"
        self._waiting += head.encode("ascii") + packed
        if len(self._waiting) > MAX_WAITING_BYTES:
            raise WireError(f"the reader has taken nothing for {len(self._waiting)} bytes")
        self.push()

    def push(self) -> None:
        """Write what the pipe takes without waiting.

        Raises:
            WireError: the pipe is broken.
        """
        while self._waiting:
            try:
                taken = os.write(self._descriptor, self._waiting[:65536])
            except BlockingIOError:
                return
            except OSError as error:
                raise WireError(f"cannot write: {error}") from error
            del self._waiting[:taken]


def encode(record: Dict[str, Any]) -> bytes:
    """A record as JSON; numbers that are not finite (run.json may hold some) become null."""
    try:
        text = json.dumps(record, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except ValueError:
        text = json.dumps(finite(record), separators=(",", ":"), ensure_ascii=False)
    return text.encode("utf-8", "replace")


def finite(value: Any) -> Any:
    """The same value with None for what is no number."""
    if isinstance(value, dict):
        return {key: finite(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class Receiver:
    """Requests in: a line with a length, then JSON, and for `tool` the raw bytes after it."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._buffer = bytearray()
        self._request: Optional[Dict[str, Any]] = None
        self._raw_bytes = 0

    def receive(self) -> Tuple[List[Tuple[Dict[str, Any], bytes]], bool]:
        """Whole requests that have arrived, and whether the input has ended.

        Raises:
            WireError: what came is not a request.
        """
        ended = False
        while True:
            try:
                part = os.read(self._descriptor, 1 << 20)
            except BlockingIOError:
                break
            except OSError:
                ended = True
                break
            if not part:
                ended = True
                break
            self._buffer += part
        return list(self._whole()), ended

    def _whole(self) -> Iterator[Tuple[Dict[str, Any], bytes]]:
        while True:
            if self._request is None and not self._parse_head():
                return
            if self._request is None or len(self._buffer) < self._raw_bytes:
                return
            raw = bytes(self._buffer[: self._raw_bytes])
            del self._buffer[: self._raw_bytes]
            request, self._request = self._request, None
            yield request, raw

    def _parse_head(self) -> bool:
        line_end = self._buffer.find(b"\n")
        if line_end < 0:
            if len(self._buffer) > 20:
                raise WireError("request: no length line")
            return False
        try:
            size = int(self._buffer[:line_end])
        except ValueError as error:
            raise WireError(
                f"request: length expected, got {bytes(self._buffer[:20])!r}"
            ) from error
        if not 0 < size <= MAX_REQUEST_BYTES:
            raise WireError(f"request: {size} bytes, expected 1 to {MAX_REQUEST_BYTES}")
        if len(self._buffer) < line_end + 1 + size:
            return False
        request = parse_request(bytes(self._buffer[line_end + 1 : line_end + 1 + size]))
        del self._buffer[: line_end + 1 + size]
        self._raw_bytes = request["bytes"] if request.get("op") == "tool" else 0
        self._request = request
        return True


def parse_request(body: bytes) -> Dict[str, Any]:
    """One request; a `tool` has a sensible number of bytes to follow.

    Raises:
        WireError: not an object, or not JSON.
    """
    try:
        request = json.loads(body.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise WireError(f"request: not JSON: {error}") from error
    if not isinstance(request, dict):
        raise WireError("request: not an object")
    if request.get("op") == "tool":
        size = request.get("bytes")
        if not isinstance(size, int) or not 0 <= size <= MAX_REQUEST_BYTES:
            raise WireError(f"tool: {size!r} bytes, expected 0 to {MAX_REQUEST_BYTES}")
    return request
