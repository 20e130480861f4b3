"""Errors a person can act on: what, observed, expected, and the next step."""

from __future__ import annotations

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
