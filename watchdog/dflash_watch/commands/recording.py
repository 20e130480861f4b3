"""`--record`: every record the engine gets, on its way to a file."""

from __future__ import annotations

import logging
from pathlib import Path

from dflash_events import __version__

from dflash_watch.capture import CaptureWriter
from dflash_watch.clock import Clock
from dflash_watch.frame import Record
from dflash_watch.model import RunOptions
from dflash_watch.outlet import Outlet

RECORDS_THAT_MAY_WAIT = 2000
logger = logging.getLogger(__name__)


class Recorder:
    """Writes records in a thread of its own; a disk that fails ends the recording only.

    Raises:
        UsageError: the file cannot be opened.
    """

    def __init__(self, path: str, options: RunOptions, clock: Clock) -> None:
        self._path = path
        self._writer = CaptureWriter(Path(path), options, clock.wall_s(), __version__)
        self._outlet: Outlet[Record] = Outlet(
            "record", self._writer.write, capacity=RECORDS_THAT_MAY_WAIT, on_end=self._end
        )

    def __call__(self, record: Record) -> None:
        """Queue one."""
        self._outlet.put(record)

    def close(self, timeout_s: float) -> None:
        """Let the last ones out and close the file."""
        if self._outlet.close(timeout_s):
            self._writer.close()
        if self._outlet.dropped:
            logger.warning("%s: %d records left out", self._path, self._outlet.dropped)

    def _end(self, error: Exception) -> None:
        logger.warning("%s: %s; recording ended, watching goes on", self._path, error)
