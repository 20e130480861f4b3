"""Errors a person can act on: what, observed, expected, and the next step."""

from __future__ import annotations

import errno

EXIT_OK, EXIT_WARNING, EXIT_CRITICAL, EXIT_UNKNOWN, EXIT_USAGE = 0, 1, 2, 3, 64


class WatchError(Exception):
    """Base of everything dflash_watch raises on purpose.

    Args:
        message: one line, lower case: what, observed, expected.
        hint: the next thing to do.
        permanent: retrying will not help.
    """

    exit_code = EXIT_UNKNOWN

    def __init__(self, message: str, *, hint: str | None = None, permanent: bool = True) -> None:
        super().__init__(message)
        self.message, self.hint, self.permanent = message, hint, permanent

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message


class UsageError(WatchError, ValueError):
    """The command line or a file named on it is wrong."""

    exit_code = EXIT_USAGE


class OutputError(WatchError, OSError):
    """Standard output takes nothing more: a full disk, a broken device. Not a reader that left."""


class LinkError(WatchError, ConnectionError):
    """The way to the run is broken; says nothing about the run."""


class CaptureError(WatchError, ValueError):
    """A recording cannot be read."""

    exit_code = EXIT_USAGE


_LACKING = {
    errno.EMFILE: "open files",
    errno.ENFILE: "open files",
    errno.ENOMEM: "memory",
    errno.EAGAIN: "processes",
}


def what_lacks(error: BaseException | None) -> str | None:
    """What this machine refused, when that is what lies behind an error; None for all else."""
    while error is not None:
        if isinstance(error, MemoryError):
            return "memory"
        if isinstance(error, OSError) and error.errno in _LACKING:
            return _LACKING[error.errno]
        if isinstance(error, RuntimeError) and "start new thread" in str(error):
            return "threads"
        error = error.__cause__ or error.__context__
    return None
