"""A thread that only proves that the interpreter switches threads, and records how late it was."""

from __future__ import annotations

import threading
import time
from contextlib import suppress

from dflash_events import layout as at
from dflash_events.beats import BeatPage

EVERY_S = 0.1
_MEMORY_NS = 30 * 10**9
"""`max_late` forgets after one to two of these, so that the start of a run does not colour it."""


class Ticker:
    """Beats ten times a second into the page until stopped.

    A ticker that beats over still workers says: deadlock or device, not the interpreter. A ticker
    that stands still in a process that is neither stopped nor in a kernel call says: the
    interpreter lock is held.
    """

    def __init__(self, page: BeatPage, every_s: float = EVERY_S) -> None:
        self._words, self._every_ns = page.words, int(every_s * 1e9)
        self._running = threading.Lock()
        """Held while it ticks. Waiting for a lock is one call; for an Event, Python code."""
        self._running.acquire()
        self._thread = threading.Thread(target=self._run, name="dflash-ticker", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End; does not wait."""
        with suppress(RuntimeError):  # stopped already
            self._running.release()

    def _run(self) -> None:
        set_thread_comm("dflash-ticker")
        beats, late = 0, 0
        recent, before, began = 0, 0, time.monotonic_ns()
        due = began
        while True:
            now = time.monotonic_ns()
            late = max(now - due, 0)
            if now - began > _MEMORY_NS:
                before, recent, began = recent, 0, now
            recent = max(recent, late)
            beats += 1
            self._store(beats, now, late, max(recent, before))
            due = now + self._every_ns
            if self._running.acquire(timeout=self._every_ns / 1e9):
                return

    def _store(self, beats: int, now: int, late: int, max_late: int) -> None:
        words = self._words
        words[at.TICKER + at.T_BEGIN] = beats
        words[at.TICKER + at.T_BEATS] = beats
        words[at.TICKER + at.T_NS] = now
        words[at.TICKER + at.T_LATE_NS] = late
        words[at.TICKER + at.T_MAX_LATE_NS] = max_late
        words[at.TICKER + at.T_END] = beats


def set_thread_comm(name: str) -> None:
    """Name the calling thread for `/proc` and `top`: 15 bytes.

    The main thread keeps its name: it is the process's own, by which people find it.
    """
    tid = threading.get_native_id()
    if threading.current_thread() is threading.main_thread():
        return
    try:
        with open(f"/proc/self/task/{tid}/comm", "wb") as file:  # noqa: PTH123 - procfs, not a path
            file.write(name.encode("utf-8", "replace")[:15])
    except OSError:
        return
