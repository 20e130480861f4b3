"""Standard input, output and error of this process, as good as they can be had."""

from __future__ import annotations

import io
import os
import sys

from dflash_watch.errors import OutputError


class _Unfailing(io.FileIO):
    """A descriptor whose full disk, broken device or left reader costs words and nothing else."""

    def write(self, data: object) -> int:
        view = memoryview(data)  # type: ignore[arg-type]  # any buffer, as the base takes it
        try:
            taken = super().write(view)
        except OSError:
            return view.nbytes
        return view.nbytes if taken is None else taken


def open_standard_streams() -> None:
    """Whatever was closed (`>&-`, some schedulers) leads nowhere, and no complaint can fail.

    Otherwise the next file or socket would get its number, and lines meant for a person with it;
    and a log of errors on a full disk would end a watching, and change every exit code.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # The lowest free number is the one that was closed, since those below are open.
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115, PTH123
    told = sys.stderr
    if told is sys.__stderr__ and isinstance(told, io.TextIOWrapper):
        raw = io.BufferedWriter(_Unfailing(told.fileno(), "w", closefd=False))
        sys.stderr = io.TextIOWrapper(raw, told.encoding, "backslashreplace", write_through=True)


def finish_output() -> None:
    """All that was printed goes out now; what cannot is forgotten, not left to fail at the end.

    Raises:
        OutputError: it cannot be written. A reader that has gone has seen enough.
    """
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        forget_output()
    except OSError as error:
        forget_output()
        hint = "make room, or write elsewhere"
        raise OutputError(f"standard output: {error.strerror}", hint=hint) from error


def forget_output() -> None:
    """What still waits for standard output goes nowhere when the interpreter ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
