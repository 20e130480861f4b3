"""Where lines go: standard output and train.log; warnings to standard error as well.

Everything a person reads in the morning passes here; machine data goes to the run directory.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import TextIO

LOG_NAME = "train.log"
PACKAGE = "dflash_train"


class _BelowWarning(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        return record.levelno < logging.WARNING


class _Lines(logging.Formatter):
    """`2026-11-29 17:10:02 text`; with the level's name from warnings up."""

    def __init__(self, rank: int) -> None:
        who = f"rank {rank}: " if rank else ""
        super().__init__(f"%(asctime)s {who}%(message)s", "%Y-%m-%d %H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:
        line = super().formatMessage(record)
        if record.levelno < logging.WARNING:
            return line
        return line.replace(record.message, f"{record.levelname.lower()}: {record.message}", 1)


class BarHandler(logging.Handler):
    """Lines above a progress bar, so that neither breaks the other."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line through tqdm, which redraws the bar below it."""
        from tqdm import tqdm  # noqa: PLC0415  (a terminal only; keeps --help fast)

        tqdm.write(self.format(record), file=sys.stdout)


def open_log(run_dir: Path, stdout: TextIO, stderr: TextIO, rank: int = 0) -> logging.Logger:
    """Configure the package's logger; each line is flushed as it is written.

    Of several processes the first speaks, the others from warnings up and with their rank.

    A standard output that has gone away (a closed pipe) does not end a training run.
    """
    logging.raiseExceptions = False
    logger = logging.getLogger(PACKAGE)
    close_log()
    is_terminal = stdout.isatty() and stderr.isatty()
    screen = BarHandler() if is_terminal else logging.StreamHandler(stdout)
    screen.addFilter(_BelowWarning())
    trouble = logging.StreamHandler(stderr)
    trouble.setLevel(logging.WARNING)
    file = logging.FileHandler(run_dir / LOG_NAME, encoding="utf-8")
    if rank:
        file.setLevel(logging.WARNING)
    for handler in (trouble, file) if rank else (screen, trouble, file):
        handler.setFormatter(_Lines(rank))
        logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    return logger


def log_only_to_file(text: str) -> None:
    """A long text (a traceback) into train.log, not on the screen."""
    logger = logging.getLogger(PACKAGE)
    record = logger.makeRecord(logger.name, logging.ERROR, __file__, 0, text, (), None)
    for handler in logger.handlers:
        if isinstance(handler, logging.FileHandler):
            handler.handle(record)


def close_log() -> None:
    """Flush and take away all handlers."""
    logger = logging.getLogger(PACKAGE)
    for handler in tuple(logger.handlers):
        handler.close()
        logger.removeHandler(handler)
