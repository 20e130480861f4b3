"""All that outlives a watcher: read when it begins, saved while it watches and when it ends."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dflash_watch.bundle import written_path
from dflash_watch.clock import Clock
from dflash_watch.commands.context import state_dir
from dflash_watch.commands.kept import KeptKeeper, kept_path, read_kept
from dflash_watch.commands.learned import (
    LimitsKeeper,
    limits_path,
    profiles_path,
    read_limits,
    read_profiles,
)
from dflash_watch.commands.request import Request
from dflash_watch.commands.stored import forget_oldest
from dflash_watch.engine import Engine


class Memory:
    """Learned limits, profiles of commands, and the open incident of one command line.

    Args:
        request: what is watched.
        folder: of incidents.
        clock: this machine's.
        is_kept: save anything; a dry run reads only.
    """

    def __init__(self, request: Request, folder: Path, clock: Clock, *, is_kept: bool) -> None:
        state = state_dir()
        limits = limits_path(state, request.place, request.target)
        profiles = profiles_path(state)
        kept = kept_path(state, request.place, request.target, folder)
        self._folder, self._is_kept = folder, is_kept
        self.limits, self.profiles = read_limits(limits), read_profiles(profiles)
        self.kept = read_kept(kept)
        self._limits, self._kept = LimitsKeeper(limits, clock, profiles), KeptKeeper(kept, clock)
        for path in (limits, kept) if is_kept else ():
            forget_oldest(path.parent)

    def settled(self) -> dict[str, str | None]:
        """Incidents that need no folder any more: also one whose watcher ended as it was whole."""
        known, found = self.kept.remembered, dict(self.kept.paths)
        for incident in (known.incident, known.last) if known is not None else ():
            if incident is not None and incident.ready and incident.key not in found:
                path = written_path(self._folder, incident)
                found |= {} if path is None else {incident.key: str(path)}
        return found

    def save(
        self, engine: Engine, paths: Mapping[str, str | None], acknowledged: Mapping[str, float]
    ) -> None:
        """What changed; never blocks."""
        if not self._is_kept:
            return
        self._limits.note(engine.limits)
        self._kept.note(engine.remembered, paths, acknowledged)

    def close(self, engine: Engine, timeout_s: float) -> None:
        """Let the last of it through."""
        if not self._is_kept:
            return
        self._kept.close(timeout_s)
        self._limits.close(engine.limits, timeout_s, engine.profile)
