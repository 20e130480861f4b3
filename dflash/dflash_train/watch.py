"""The headless watchdog beside a run: a sibling process, never a part of this one.

Its trouble is one line in the log. It gets its own session, so that a signal to the trainer's group
does not end it, and a lower priority. It outlives the run by moments: how a run ended can only be
said afterwards.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import subprocess
import sys
from pathlib import Path

logger = logging.getLogger(__name__)

INCIDENTS_NAME, WATCH_LOG_NAME = "incidents", "watch.log"
NICENESS = 10


class Watchdog:
    """`dflash-watch --plain` over our own run directory; dashboards attach to it.

    Args:
        run_dir: what it watches and where incidents go.
        command: another program to start instead; for tests.
    """

    def __init__(self, run_dir: Path, command: tuple[str, ...] | None = None) -> None:
        self.incidents = run_dir / INCIDENTS_NAME
        self._log = run_dir / WATCH_LOG_NAME
        self._command = command or (
            sys.executable,
            *("-m", "dflash_watch.cli"),
            *("--run-dir", str(run_dir)),
            *("--incidents", str(self.incidents)),
            "--plain",
            "--until-end",
            "--attachable",
        )
        self._is_ours = command is None
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; failing to is a line in the log and nothing more."""
        try:
            if self._is_ours and importlib.util.find_spec("dflash_watch.cli") is None:
                logger.warning("no watchdog beside this run: dflash_watch is not complete here")
                return
        except ModuleNotFoundError:
            logger.warning("no watchdog beside this run: dflash_watch is not installed")
            return
        try:
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(
                    self._command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            os.setpriority(os.PRIO_PROCESS, self._process.pid, NICENESS)
        except OSError as error:
            logger.warning("no watchdog beside this run: %s", error)
            return
        logger.info(
            "watchdog: process %d, incidents in %s, its output in %s",
            self._process.pid,
            self.incidents,
            self._log,
        )

    def look(self) -> None:
        """Say once when it has ended by itself; called now and then."""
        if self._process is None or self._process.poll() is None:
            return
        code, self._process = self._process.returncode, None
        logger.warning("the watchdog ended by itself (exit %d); see %s", code, self._log)

    def leave(self) -> None:
        """Let it go on: it sees how the run ended, says so, keeps the evidence, and ends."""
        self._process = None
