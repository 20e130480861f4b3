"""What a command gets from the outside besides its own options, and how it is asked to stop."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import socket
    from pathlib import Path

from dflash_events.secrets import mask_text

from dflash_watch.errors import OutputError
from dflash_watch.readers.lines import printable_lines

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
STDOUT = 1
_COLOUR = re.compile(r"(\x1b\[[0-9;]{0,16}m)")


class Context(NamedTuple):
    """The process as the command sees it.

    Args:
        words: the command line as typed, without the program.
        environment: of this process.
        is_terminal: standard input and output are a terminal.
        has_colour: lines may be coloured: a terminal, and no NO_COLOR.
        show: opens the dashboard on an engine started with these words; the exit code.
        show_served: opens it on a server's connection, which it makes anew with the second
            argument whenever it is lost; the exit code.
    """

    words: Sequence[str]
    environment: Mapping[str, str]
    is_terminal: bool
    has_colour: bool
    show: Callable[[Sequence[str]], int]
    show_served: Callable[[socket.socket, Callable[[], socket.socket | None]], int]


def stop_on_signals() -> threading.Event:
    """An event that SIGINT, SIGTERM and SIGHUP set; a second SIGINT interrupts at once."""
    stop = threading.Event()

    def ask(number: int, _frame: FrameType | None) -> None:
        if stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.set()

    for number in STOP_SIGNALS:
        # A watchdog started under nohup keeps ignoring what nohup ignores.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, ask)
    return stop


def interrupt_on_signals() -> None:
    """The same signals end a short command at once, through its clean-up."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    for number in STOP_SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, interrupt)


def write_line(line: str, *, has_colour: bool = False, descriptor: int = STDOUT) -> None:
    """A line on standard output, or elsewhere, all of it, past Python's buffer.

    The last gate before a terminal: whatever a run called itself or printed, no escape code of it
    passes. Nothing waits in a buffer: a terminal that stopped reading cannot hold up the exit.

    Args:
        line: may hold line ends.
        has_colour: colours of ours stay in it.
        descriptor: where it goes.

    Raises:
        BrokenPipeError: the reader is gone.
        OutputError: it cannot be written, a full disk for one.
    """
    parts = _COLOUR.split(line) if has_colour else [line]  # every second part is a colour
    parts[::2] = [printable_lines(part) for part in parts[::2]]
    line = "".join(parts)
    rest = memoryview((line + "\n").encode("utf-8", "replace"))
    try:
        while rest:
            rest = rest[os.write(descriptor, rest) :]
    except BrokenPipeError:
        raise
    except OSError as error:
        hint = "make room, or write elsewhere"
        name = "standard output" if descriptor == STDOUT else "standard error"
        raise OutputError(f"{name}: {error.strerror}", hint=hint) from error


def tell(line: str) -> None:
    """A line on standard error: what the program says about itself, never a result."""
    sys.stderr.write(f"{printable_lines(mask_text(line))}\n")
    sys.stderr.flush()


def state_dir() -> Path:
    """Where this person's incidents, journal and learned limits lie (XDG)."""
    import platformdirs  # noqa: PLC0415 - 6 ms, and `check` has no use for it

    return platformdirs.user_state_path("dflash-watch")


def incidents_dir(option: str | None) -> Path:
    """Where incidents go: the option, else the state directory."""
    from pathlib import Path  # noqa: PLC0415 - 3 ms, and `check` has no use for it

    return Path(option).expanduser().absolute() if option else state_dir() / "incidents"
