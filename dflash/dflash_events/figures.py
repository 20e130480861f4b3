"""What the writer works out from its workers: pure functions."""

from __future__ import annotations

import signal
import traceback
from typing import Sequence

from dflash_events.schema import WAITS
from dflash_events.worker import Worker

STOPPED_CODE = 75
"""Exit status of a run that was stopped on request with a checkpoint written."""


def training_steps(workers: Sequence[Worker]) -> list[int]:
    """Steps of the training: the drafters' where there are drafters, else anybody's but a loader's.

    A loader or a target runs ahead: its count says nothing about a first step.
    """
    drafters = [each for each in workers if each.role == "drafter"]
    counting = drafters or [each for each in workers if each.role != "loader"]
    return [each.step for each in counting if each.step is not None]


def wait_shares(waited: list[int], before: list[int] | None, window_ns: int) -> dict[str, float]:
    """Share of the window by reason, those above zero."""
    earlier = before or [0] * len(waited)
    shares = {
        reason: min(max(now - then, 0) / window_ns, 1.0)
        for reason, now, then in zip(WAITS, waited, earlier)
    }
    return {reason: round(share, 4) for reason, share in shares.items() if share > 0}


def ending_of(exception: BaseException | None) -> tuple[int | None, str, str | None]:
    """Code, reason and message of the exit event, from what left the `with` block."""
    if exception is None:
        return 0, "done", None
    if isinstance(exception, KeyboardInterrupt):
        return 128 + signal.SIGINT, "stopped", "interrupted from the keyboard"
    if isinstance(exception, SystemExit):
        code = exception.code
        if code is None or code == 0:
            return 0, "done", None
        if code == STOPPED_CODE:
            return STOPPED_CODE, "stopped", "stopped on request"
        return (code, "failed", None) if isinstance(code, int) else (1, "failed", str(code))
    last = traceback.format_exception_only(type(exception), exception)[-1]
    return 1, "failed", last.strip()[:2000]
