"""All stacks on a signal, from within: what a watchdog asks for where it may not look in itself."""

from __future__ import annotations

import faulthandler
import os
import signal
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator, TypedDict

STACKS_NAME = "stacks.txt"
STACK_SIGNAL = signal.SIGUSR1


class Armed:
    """The signal makes this process append all its stacks to a file, until `disarm`.

    Works while the interpreter lock is held, since the handler is plain C. It replaces any other
    handler of the signal, and is replaced by one that comes later: take a signal that nothing else
    in the process uses.

    Args:
        run_dir: the run directory; made if it is missing.
        rank: processes other than the first write into a file of their own, `stacks-1.txt`.
        number: of the signal.

    Raises:
        OSError: the file cannot be opened.
        ValueError: no number of a signal that may be handled.
    """

    def __init__(self, run_dir: str | Path, rank: int = 0, number: int = STACK_SIGNAL) -> None:
        name = f"stacks-{rank}.txt" if rank else STACKS_NAME
        self.number = int(number)
        self.path = Path(os.path.abspath(run_dir)) / name  # noqa: PTH100 - as run.json spells it
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self.path.open("a", encoding="utf-8")
        try:
            faulthandler.register(self.number, file=self._file, all_threads=True, chain=False)
        except (RuntimeError, ValueError, OverflowError, OSError) as error:
            self._file.close()
            raise ValueError(f"signal {number}: {error}") from error

    def disarm(self) -> None:
        """No more stacks; a late signal is ignored, for its default would end the process.

        Only the main thread may say so: called from any other, it stays armed.
        """
        if self._file.closed or threading.current_thread() is not threading.main_thread():
            return
        faulthandler.unregister(self.number)
        signal.signal(self.number, signal.SIG_IGN)
        self._file.close()


@contextmanager
def stack_signal(run_dir: str | Path, rank: int = 0, number: int = STACK_SIGNAL) -> Iterator[Armed]:
    """`Armed` for as long as it lasts."""
    armed = Armed(run_dir, rank, number)
    try:
        yield armed
    finally:
        armed.disarm()


class Declaration(TypedDict, total=False):
    """Arguments of `RunWriter` that declare it."""

    faulthandler_signal: int
    faulthandler_file: Path


def declaration(armed: Armed | None) -> Declaration:
    """For run.json; empty when nothing is armed."""
    if armed is None:
        return {}
    return {"faulthandler_signal": armed.number, "faulthandler_file": armed.path}
