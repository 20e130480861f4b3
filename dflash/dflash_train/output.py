"""Results go to standard output here; what cannot be written is said in one line."""

from __future__ import annotations

import os
import sys

from dflash_train.errors import DflashError


def put(text: str) -> None:
    """Write `text` to standard output now.

    Raises:
        DflashError: standard output does not take it, e.g. a full disk or a closed pipe.
    """
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        _forget()
        raise DflashError(
            f"standard output: {error.strerror}; what was printed is not whole"
        ) from error


def finish() -> None:
    """Standard output's last lines go out; that its reader has gone is no failure of a run."""
    try:
        sys.stdout.flush()
    except OSError:
        _forget()


def _forget() -> None:
    """What is left in its buffer would fail once more when Python ends, with exit code 120."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
