"""Learned limits between two watchings of the same run: a small file in the state directory.

The engine drops what belongs to another run; here it is kept under a name that the same command
line finds again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
from pathlib import Path
from typing import Any

import msgspec

from dflash_watch.clock import Clock
from dflash_watch.limits import LearnedLimits
from dflash_watch.outlet import Outlet
from dflash_watch.place import Place, TargetChoice

SAVE_EVERY_S = 60.0
logger = logging.getLogger(__name__)


def limits_path(folder: Path, place: Place, target: TargetChoice) -> Path:
    """Where the limits of what this command line watches lie."""
    asked = msgspec.json.encode([place, target])
    return folder / "limits" / f"{hashlib.sha256(asked).hexdigest()[:16]}.json"


def read_limits(path: Path) -> LearnedLimits | None:
    """What was learned before; None when there is nothing that can be read."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return LearnedLimits.from_data(data) if isinstance(data, dict) else None


class LimitsKeeper:
    """Saves now and then, and at the end, without holding up the watching."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path, self._clock = path, clock
        self._saved_s = clock.monotonic_s()
        self._outlet: Outlet[dict[str, Any]] = Outlet("limits", self._write, capacity=1)

    def note(self, limits: LearnedLimits) -> None:
        """Save these if the last time is long enough ago."""
        now_s = self._clock.monotonic_s()
        if now_s - self._saved_s >= SAVE_EVERY_S:
            self._saved_s = now_s
            self._outlet.put(limits.to_data())

    def close(self, limits: LearnedLimits, timeout_s: float) -> None:
        """Save these, if they are of any run."""
        if limits.identity is not None:
            self._outlet.put(limits.to_data())
        self._outlet.close(timeout_s)

    def _write(self, data: dict[str, Any]) -> None:
        new = self._path.with_suffix(f".{os.getpid()}.new")
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            new.write_text(json.dumps(data), encoding="utf-8")
            new.replace(self._path)
        except OSError as error:
            logger.warning("learned limits not kept: %s", error)
            with contextlib.suppress(OSError):  # an empty one is all that a full disk took
                new.unlink()
            raise
