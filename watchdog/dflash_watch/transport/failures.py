"""What the tools of an entry say when they fail, and what it means."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dflash_watch.transport.base import Reason, TransportError, plain

MOST_SIGNALS = 64
# Read from top to bottom; 1, 2, 126, 127 and 255 mean different things to each tool.
_FAILURES: Sequence[tuple[str, Reason, str]] = (
    (r"DFLASH-NO-PYTHON", Reason.NO_PYTHON, "no Python 3.8 or newer there"),
    (
        r"not running|is not running|container state improper",
        Reason.CONTAINER_STOPPED,
        "not running",
    ),
    (r"is paused|frozen", Reason.CONTAINER_FROZEN, "paused"),
    (
        r"(?i)no such container|does not exist|doesn't exist|NotFound|instance not found",
        Reason.CONTAINER_MISSING,
        "does not exist",
    ),
    (r"(?i)a password is required|sudo: .*not allowed", Reason.ENTRY_FAILED, "sudo is not allowed"),
    (
        r"(?i)permission denied|must be root|EACCES",
        Reason.ENTRY_FAILED,
        "no permission (root needed?)",
    ),
    (
        r"Failed to get init pid|Failed to get attach context",
        Reason.CONTAINER_STOPPED,
        "not running",
    ),
    (
        r"Failed to exec|executable file not found|no such file",
        Reason.ENTRY_FAILED,
        "no shell inside",
    ),
    (r"(?i)command not found|: not found", Reason.ENTRY_FAILED, "a program is missing"),
)


def read_failure(where: str, stderr: str, noise: str, status: int | None) -> TransportError:
    """Class and words for a command that ended before the agent spoke."""
    last = next((line for line in reversed((stderr or noise).strip().splitlines()) if line), "")
    said = f": {plain(last.strip()[:200])}" if last else ""
    if status == 97:
        stderr += " DFLASH-NO-PYTHON"
    for pattern, reason, words in _FAILURES:
        if re.search(pattern, stderr):
            text = f"{where}: {words}" + ("" if reason is Reason.NO_PYTHON else said)
            hint = "install python3 there" if reason is Reason.NO_PYTHON else None
            return TransportError(reason, text, hint=hint)
    code = "was cut off" if status is None else f"ended with status {status}"
    reason = Reason.LOST if status is None else Reason.ENTRY_FAILED
    if status is not None and 128 < status <= 128 + MOST_SIGNALS:
        # Memory ran short, or somebody hit the wrong process: the next one may live.
        reason, code = Reason.LOST, f"was killed by signal {status - 128}"
    return TransportError(reason, f"{where}: the entry {code} before the agent spoke{said}")
