"""What was learned, between two watchings: small files in the state directory.

Limits of a run are kept under a name that the same command line finds again; the engine drops what
belongs to another run. Profiles of commands are kept for later runs of them.
"""

from __future__ import annotations

import hashlib
import threading
from pathlib import Path
from typing import Any

import msgspec

from dflash_watch.clock import Clock
from dflash_watch.commands.stored import SCHEMA, Writer, is_newer, read_stored
from dflash_watch.limits import LearnedLimits
from dflash_watch.outlet import Outlet
from dflash_watch.place import Place, TargetChoice
from dflash_watch.profiles import Profile, profile_from_data

SAVE_EVERY_S = 0.9
"""With each look, which comes once a second: a watcher that is killed loses no more."""
MOST_PROFILES = 100
"""Commands remembered; those not seen for longest are forgotten."""
_PROFILES = threading.Lock()
"""Runs of one process share the file of profiles."""


def watch_key(place: Place, target: TargetChoice) -> str:
    """Equal for command lines that watch the same; safe in a file name."""
    return hashlib.sha256(msgspec.json.encode([place, target])).hexdigest()[:16]


def limits_path(folder: Path, place: Place, target: TargetChoice) -> Path:
    """Where the limits of what this command line watches lie."""
    return folder / "limits" / f"{watch_key(place, target)}.json"


def read_limits(path: Path) -> LearnedLimits | None:
    """What was learned before; None when there is nothing that can be read."""
    data = read_stored(path)
    return LearnedLimits.from_data(data) if data and not is_newer(data) else None


def profiles_path(folder: Path) -> Path:
    """Where the profiles of commands lie."""
    return folder / "profiles.json"


def read_profiles(path: Path) -> dict[str, Profile]:
    """Profiles by their name; what cannot be believed is left out."""
    data = read_stored(path)
    kept = None if is_newer(data) else data.get("profiles")
    found = {
        str(key): profile_from_data(one)
        for key, one in (kept.items() if isinstance(kept, dict) else ())
    }
    return {key: one for key, one in found.items() if one is not None}


class LimitsKeeper:
    """Saves now and then, and at the end, without holding up the watching.

    Args:
        path: of the limits of this command line.
        clock: this machine's.
        profiles: of the profiles of all commands; None keeps none.
    """

    def __init__(self, path: Path, clock: Clock, profiles: Path | None = None) -> None:
        self._path, self._clock, self._profiles = path, clock, profiles
        self._saved_s = clock.monotonic_s()
        self._saved: dict[str, Any] = {}
        self._writer = Writer("learned limits not kept")
        self._outlet: Outlet[dict[str, Any]] = Outlet("limits", self._write, capacity=1)

    def note(self, limits: LearnedLimits) -> None:
        """Save these if they have changed and the last time is long enough ago."""
        now_s = self._clock.monotonic_s()
        if limits.identity is None or now_s - self._saved_s < SAVE_EVERY_S:
            return
        self._saved_s, data = now_s, limits.to_data()
        if data != self._saved:
            self._saved = data
            self._outlet.put(dict(data))

    def close(
        self,
        limits: LearnedLimits,
        timeout_s: float,
        profile: tuple[str, Profile] | None = None,
    ) -> None:
        """Save these, if they are of any run, and what later runs of the command may use."""
        if limits.identity is not None:
            self._outlet.put({**limits.to_data(), "profile": profile})
        self._outlet.close(timeout_s)

    def _write(self, data: dict[str, Any]) -> None:
        profile = data.pop("profile", None)
        self._writer.put(self._path, data)
        if profile is not None and self._profiles is not None:
            key, one = profile
            with _PROFILES:
                known = {**read_profiles(self._profiles), key: one}
                newest = sorted(known.items(), key=lambda kept: kept[1].used_t)[-MOST_PROFILES:]
                told = {name: msgspec.to_builtins(kept) for name, kept in newest}
                self._writer.put(self._profiles, {"schema": SCHEMA, "profiles": told})
