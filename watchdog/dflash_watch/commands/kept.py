"""What one watcher leaves to the next: the incident that is open, where it lies, who knows of it.

One file for each command line and folder of incidents, written as it changes and once a second, so
that a watcher that is killed loses no more. The engine drops what belongs to another run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from dflash_watch.clock import Clock
from dflash_watch.commands.learned import watch_key
from dflash_watch.commands.stored import SCHEMA, Writer, is_newer, read_stored, set_aside
from dflash_watch.model import Record
from dflash_watch.outlet import Outlet
from dflash_watch.place import Place, TargetChoice
from dflash_watch.remembered import Remembered

SAVE_EVERY_S = 0.9
"""With each look: they come once a second."""


class Kept(Record, frozen=True, kw_only=True):
    """What the file holds."""

    schema: int = SCHEMA
    remembered: Remembered | None = None
    paths: dict[str, str | None] = msgspec.field(default_factory=dict)
    """Incident key -> its folder; None when it was decided to keep none."""
    acknowledged: dict[str, float] = msgspec.field(default_factory=dict)
    """Incident key -> when a person said that they know."""


def kept_path(state: Path, place: Place, target: TargetChoice, incidents: Path) -> Path:
    """Where that lies for what this command line watches."""
    mark = f"{watch_key(place, target)} {incidents}"
    return state / "watches" / f"{hashlib.sha256(mark.encode()).hexdigest()[:16]}.json"


def read_kept(path: Path) -> Kept:
    """What the watcher before left; nothing when that cannot be read."""
    data = read_stored(path)
    if not data or is_newer(data):
        return Kept()
    try:
        return msgspec.convert(data, Kept)
    except (msgspec.ValidationError, OverflowError):
        set_aside(path)
        return Kept()


class KeptKeeper:
    """Saves it beside the watching.

    Args:
        path: of the file.
        clock: this machine's.
    """

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path, self._clock = path, clock
        self._saved_s = self._saved_t = float("-inf")
        self._saved: tuple[object, ...] | None = None
        self._writer = Writer("a restart will not know of what was seen")
        self._outlet: Outlet[Kept] = Outlet("kept", self._write, capacity=1)

    def note(
        self,
        remembered: Remembered | None,
        paths: Mapping[str, str | None],
        acknowledged: Mapping[str, float],
    ) -> None:
        """Save at once what happened; that time passed, once a second."""
        if remembered is None:
            return
        known = [one.key for one in (remembered.incident, remembered.last) if one is not None]
        kept = Kept(
            remembered=remembered,
            paths={key: paths[key] for key in known if key in paths},
            acknowledged={key: acknowledged[key] for key in known if key in acknowledged},
        )
        what = (remembered.verdict, remembered.incident, remembered.last, kept.paths)
        now_s, news = self._clock.monotonic_s(), (*what, kept.acknowledged)
        is_due = remembered.t > self._saved_t and now_s - self._saved_s >= SAVE_EVERY_S
        if is_due or news != self._saved:
            self._saved_s, self._saved, self._saved_t = now_s, news, remembered.t
            self._outlet.put(kept)

    def close(self, timeout_s: float) -> None:
        """Let the last one through."""
        self._outlet.close(timeout_s)

    def _write(self, kept: Kept) -> None:
        data: dict[str, Any] = msgspec.to_builtins(kept)
        self._writer.put(self._path, data)
