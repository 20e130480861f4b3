"""What the program says about itself, on standard error, without ever waiting for a terminal."""

from __future__ import annotations

import logging
import os

from dflash_watch.guard import paragraphs
from dflash_watch.outlet import Outlet

STDERR = 2
NOTICES_THAT_MAY_WAIT = 200


class OutletHandler(logging.Handler):
    """Writes records in a thread of its own; a terminal that does not read costs notices only."""

    def __init__(self) -> None:
        super().__init__()
        self._outlet: Outlet[str] = Outlet("notices", _write, capacity=NOTICES_THAT_MAY_WAIT)

    def emit(self, record: logging.LogRecord) -> None:
        """Queue one line."""
        self._outlet.put(self.format(record))

    def finish(self, timeout_s: float) -> None:
        """Let the last notices out."""
        self._outlet.close(timeout_s)


def _write(line: str) -> None:
    os.write(STDERR, f"{paragraphs(line)}\n".encode("utf-8", "backslashreplace"))


def speak() -> OutletHandler:
    """Notices of this package go to standard error; those of libraries only when it matters."""
    handler = OutletHandler()
    handler.setFormatter(logging.Formatter("dflash-watch: %(message)s"))
    logging.getLogger("dflash_watch").addHandler(handler)
    logging.getLogger("dflash_watch").propagate = False
    logging.getLogger("paramiko").addHandler(logging.NullHandler())
    logging.getLogger("paramiko").propagate = False
    return handler
