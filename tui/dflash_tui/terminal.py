"""The terminal's edges: what it can show, and leaving it clean when the process is told to end.

A terminal that stops reading blocks the framework's loop, so a signal alone would never end the
dashboard there: a timer then restores the terminal as far as it takes anything, and leaves.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Final

ENDING: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
GRACE_S: Final = 0.8
SIZES: Final = ("COLUMNS", "LINES")
RESTORE: Final = (
    b"\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?1015l\x1b[?1016l\x1b[?1004l\x1b[?2004l"
    b"\x1b[<u\x1b[?1049l\x1b[?25h\x1b[0m"
)
"""Mouse, focus and paste reporting, keyboard protocol, alternate screen off; cursor on."""


def speaks_utf8() -> bool:
    """Do both streams of the terminal encode as UTF-8? The screen is written to stderr."""
    streams = (sys.__stdout__, sys.__stderr__)
    names = [(getattr(stream, "encoding", None) or "").lower() for stream in streams]
    return all(name.replace("-", "") == "utf8" for name in names)


def is_terminal() -> bool:
    """Can a full-screen program run here?"""
    streams = (sys.__stdin__, sys.__stderr__)
    return all(stream is not None and stream.isatty() for stream in streams)


@contextlib.contextmanager
def own_size() -> Iterator[None]:
    """The size is the terminal's own: an exported COLUMNS or LINES never follows a resize."""
    environment = os.environ  # noqa: TID251 - the framework reads them there, and nowhere else
    exported = {name: environment.pop(name) for name in SIZES if name in environment}
    try:
        yield
    finally:
        environment.update(exported)


@contextlib.contextmanager
def ending_on_signals(leave: Callable[[int], None]) -> Iterator[None]:
    """Calls `leave(128 + number)` on TERM, HUP and INT; within `GRACE_S` the process ends.

    `leave` runs inside a signal handler: it may only hand the wish on.
    """
    saved = _terminal_mode()
    told, done = threading.Event(), threading.Event()

    def force(code: int) -> None:
        if not done.wait(GRACE_S):
            _restore(saved)
            os._exit(code)

    def on_signal(number: int, frame: FrameType | None) -> None:
        del frame
        code = 128 + number
        if not told.is_set():
            told.set()
            threading.Thread(target=force, args=(code,), name="ending", daemon=True).start()
            leave(code)

    before = {number: signal.signal(number, on_signal) for number in ENDING}
    try:
        yield
    finally:
        done.set()
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)


def _terminal_mode() -> list[Any] | None:
    """How the terminal was set before; None where there is none."""
    try:
        return termios.tcgetattr(0)
    except termios.error:
        return None


def _restore(mode: list[Any] | None) -> None:
    """Puts the terminal back without ever waiting for it."""
    with contextlib.suppress(OSError, termios.error):
        if mode is not None:
            termios.tcsetattr(0, termios.TCSANOW, mode)
        fd = os.open(os.ttyname(2), os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
        os.write(fd, RESTORE)
