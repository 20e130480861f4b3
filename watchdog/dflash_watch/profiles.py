"""What earlier runs of a command taught: how long its steps and its phases take.

A run that starts is not unknown when the same command ran before. Pure; `commands/learned.py` keeps
profiles on disk. A profile is found by the command line with numbers and folders left out, and only
the hash of that is kept.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

from dflash_watch.model import Record

BLEND = 0.5
"""Weight of the newest run: one odd run does not stay for ever."""
LONGEST_S = 7 * 86400.0
MOST = 10**12
"""Steps, or seconds of the clock."""
MOST_PHASES = 16
_PYTHON = re.compile(r"^(?:python|pypy)[\d.]*$")
_NUMBER = re.compile(r"\d[\d._]*(?:e[+-]?\d+)?")
_PLAIN_OPTION = re.compile(r"^-[uBEIsSOq]+$")


class Profile(Record, frozen=True, kw_only=True):
    """Figures of one command."""

    limit_s: float
    """Limit between steps that its runs taught."""
    steps: int
    """Steps they were learned from."""
    phases: dict[str, float]
    """Phase -> longest seconds it took."""
    used_t: float = 0.0
    """When it was last written; wall clock of the watcher."""

    def blended(self, newer: Profile) -> Profile:
        """Both as one, the newer one weighs half."""
        phases = dict(self.phases)
        for name, seconds in newer.phases.items():
            phases[name] = _mix(phases.get(name), seconds)
        return Profile(
            limit_s=_mix(self.limit_s, newer.limit_s),
            steps=newer.steps,
            phases=dict(list(phases.items())[:MOST_PHASES]),
            used_t=newer.used_t,
        )


def _mix(older: float | None, newer: float) -> float:
    return newer if older is None else BLEND * newer + (1 - BLEND) * older


def profile_key(where: str, cmd: str) -> str | None:
    """Name under which the figures of a command are kept; None when there is no script in it.

    Args:
        where: `Place.label()`: the same command on another machine is another one.
        cmd: command line, secrets masked already.
    """
    words = cmd.split()
    if words and _PYTHON.match(words[0].rpartition("/")[2]):
        words = words[1:]
    while words and _PLAIN_OPTION.match(words[0]):
        words = words[1:]
    if not words:
        return None
    kept = [words[0], *(_shape(word) for word in words[1:])]
    return hashlib.sha256("\0".join([where, *kept]).encode()).hexdigest()[:24]


def _shape(word: str) -> str:
    """An argument without what differs from run to run: numbers, folders."""
    name, equals, value = word.partition("=")
    if equals:
        return f"{name}={_shape(value)}"
    return "PATH" if "/" in word else _NUMBER.sub("#", word)


def profile_from_data(data: object) -> Profile | None:
    """From JSON that may be anybody's; None when it cannot be believed."""
    if not isinstance(data, Mapping):
        return None
    limit_s, steps, phases = _seconds(data.get("limit_s")), data.get("steps"), data.get("phases")
    if limit_s is None or not isinstance(steps, int) or not isinstance(phases, Mapping):
        return None
    known = {str(name): _seconds(one) for name, one in list(phases.items())[:MOST_PHASES]}
    used_t = data.get("used_t")
    if not isinstance(used_t, int | float) or not 0 <= used_t < MOST:
        used_t = 0.0
    return Profile(
        limit_s=limit_s,
        steps=min(max(steps, 0), MOST),
        phases={name: one for name, one in known.items() if one is not None},
        used_t=float(used_t),
    )


def _seconds(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 < value < LONGEST_S else None
