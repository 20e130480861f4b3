"""Stop requests: the first signal finishes the step and saves, the second ends at once."""

from __future__ import annotations

import logging
import os
import signal
import time
from types import FrameType

from dflash_train.errors import EXIT_FAILED, DflashError

logger = logging.getLogger(__name__)
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StoppedAtOnceError(DflashError):
    """A second signal came: nothing more is saved."""


class StopRequest:
    """Set by a signal, read by the drafters at the end of each step."""

    def __init__(self) -> None:
        self.signal_name: str | None = None
        self.since_s: float | None = None
        self._count = 0
        self._is_announced = False

    def install(self) -> None:
        """Take over `SIGNALS`; only in the main thread.

        One that is ignored stays ignored: so `nohup` and the shell's `&` ask for it.
        """
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._on_signal)

    @property
    def is_requested(self) -> bool:
        """True after the first signal."""
        return self.since_s is not None

    def announce(self, meanwhile: str) -> None:
        """Say once that a stop was asked for and what is waited for; called between other work.

        Not said by the handler itself: it may interrupt the writing of another line.
        """
        if self.is_requested and not self._is_announced:
            self._is_announced = True
            logger.info(
                "stop requested (%s); %s; a second signal ends at once", self.signal_name, meanwhile
            )

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self._count += 1
        name = signal.Signals(number).name
        if self._count == 1:
            self.signal_name, self.since_s = name, time.monotonic()
        elif self._count == 2:
            raise StoppedAtOnceError(f"second signal ({name}): ended at once, nothing saved")
        else:
            os._exit(EXIT_FAILED)
