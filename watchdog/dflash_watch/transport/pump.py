"""Threads that move bytes, one a stream: neither full output nor full error blocks the other."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from contextlib import suppress

_CHUNKS = 256
_ERROR_BYTES = 8192


class Pump:
    """Reads `source` to its end into a bounded queue; `source` gives None for "nothing yet"."""

    def __init__(self, source: Callable[[], bytes | None], name: str) -> None:
        self._source = source
        self._chunks: queue.Queue[bytes | None] = queue.Queue(_CHUNKS)
        self._stopped = threading.Event()
        self._ended = False
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def take(self, timeout_s: float) -> bytes | None:
        """Next bytes; None if none came in time, empty for ever after the end."""
        if self._ended:
            return b""
        try:
            data = self._chunks.get(timeout=max(timeout_s, 0.0))
        except queue.Empty:
            return None
        self._ended = data == b""
        return data

    def wake(self) -> None:
        """Let a `take` that waits return at once; one that finds bytes waits for nothing anyway."""
        with suppress(queue.Full):
            self._chunks.put_nowait(None)

    def stop(self) -> None:
        """Hand nothing on any more; the thread goes on to the end of its source."""
        self._stopped.set()

    def _run(self) -> None:
        data = None
        while data != b"":
            data = self._source()
            if data is not None:
                self._put(data)

    def _put(self, data: bytes) -> None:
        """Waits while nobody takes: the other side is slowed, nothing is lost."""
        while not self._stopped.is_set():
            try:
                self._chunks.put(data, timeout=0.5)
            except queue.Full:
                continue
            return


class Tail:
    """Reads `source` to its end and keeps the newest bytes only."""

    def __init__(self, source: Callable[[], bytes | None], name: str) -> None:
        self._source, self._kept = source, b""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def text(self, wait_s: float = 0.0) -> str:
        """What is kept, decoded with replacement; waits for the source's end at most so long."""
        self._thread.join(wait_s)
        return self._kept.decode(errors="replace")

    def _run(self) -> None:
        data = None
        while data != b"":
            data = self._source()
            self._kept = (self._kept + (data or b""))[-_ERROR_BYTES:]
