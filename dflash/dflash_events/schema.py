"""Names shared by the writer and every reader of a run directory."""

from __future__ import annotations

SCHEMA = 1
"""Version of run.json and of each event; a reader takes what it knows of a newer one."""

MANIFEST_NAME = "run.json"
EVENTS_NAME = "events.jsonl"
BEATS_NAME = "beats"
LOG_NAME = "train.log"

PHASES = (
    "loading",
    "tuning",
    "warm-up",
    "training",
    "evaluating",
    "checkpointing",
    "stopping",
)
ROLES = ("main", "loader", "target", "drafter", "other")
WAITS = ("none", "queue-get", "queue-put", "peer", "device", "lock", "io")
STATES = ("running", "ended", "failed")

PERIODIC_KINDS = ("throughput", "heartbeat")
EDGE_KINDS = (
    "phase",
    "autotune",
    "worker-failed",
    "checkpoint",
    "quality",
    "numeric",
    "exit",
)
KINDS = PERIODIC_KINDS + EDGE_KINDS
EXIT_REASONS = ("done", "failed", "stopped")


class RunDirError(ValueError):
    """A run directory, or a file in it, that cannot be read.

    Args:
        message: one line: which file, what was observed, what was expected.
        hint: the next thing to do.
    """

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message, self.hint = message, hint

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message
