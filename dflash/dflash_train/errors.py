"""Errors of the trainer that a person can act on; imports nothing heavy."""

from __future__ import annotations

EXIT_DONE, EXIT_FAILED, EXIT_USAGE, EXIT_STOPPED = 0, 1, 64, 75


class DflashError(Exception):
    """Base of everything dflash_train raises on purpose.

    Args:
        message: one line, lower case: what, observed, expected.
        hint: the next thing to do.
    """

    exit_code = EXIT_FAILED

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message, self.hint = message, hint

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message


class UsageError(DflashError, ValueError):
    """The command line, a configuration file or data named there is wrong."""

    exit_code = EXIT_USAGE


class CheckpointError(DflashError, ValueError):
    """A checkpoint cannot be used: half written, damaged, or of another geometry."""

    exit_code = EXIT_USAGE


class PipelineStoppedError(DflashError):
    """Raised inside a worker when the pipeline ends under it; never the cause of a failure."""


class WorkerFailedError(DflashError):
    """A worker of the pipeline ended with an exception; the others were stopped.

    Args:
        worker: name of the worker that failed first.
        message: the cause, with the exception's type.
        others: further workers that failed on their own, with their causes.
    """

    def __init__(self, worker: str, message: str, others: tuple[str, ...] = ()) -> None:
        also = f" (also failed: {', '.join(others)})" if others else ""
        super().__init__(f"{worker} failed: {message}{also}")
        self.worker, self.others = worker, others
