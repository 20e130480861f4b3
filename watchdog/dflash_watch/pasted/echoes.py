"""Words of a log that only echo an earlier death: the first own error counts, not who waited."""

from __future__ import annotations

from collections.abc import Sequence

from dflash_watch.model import Symptom
from dflash_watch.readers.facts import TracebackSeen
from dflash_watch.window.logs import Logs

ECHOING = ("collective-timeout", "collective-wait", "network-fault", "collective-never-started")
"""Failures that a rank sees when another one is gone."""
ECHOES = frozenset(f"{family}-{name}" for family in ("logged", "log-end") for name in ECHOING)
NOT_OWN = frozenset({
    "DistBackendError", "DistNetworkError", "DistStoreError", "ChildFailedError", "unknown",
    "ProcessRaisedException", "ProcessExitedException", "KeyboardInterrupt", "SystemExit",
    "BrokenPipeError", "ConnectionResetError", "ConnectionRefusedError", "ConnectionError",
    "EOFError", "SignalException", "TimeoutError", "CalledProcessError", "RendezvousTimeoutError",
})  # fmt: skip
"""Exceptions that come of somebody else's end."""


def without_echoes(
    symptoms: Sequence[Symptom], logs: Logs
) -> tuple[tuple[Symptom, ...], tuple[str, ...]]:
    """The symptoms less those that an earlier own error explains, and the names of the latter."""
    first = first_own_error(logs)
    if first is None:
        return tuple(symptoms), ()
    later = [
        one for one in symptoms
        if one.name in ECHOES and (one.order > first.line or one.name.startswith("log-end-"))
    ]  # fmt: skip
    kept = tuple(one for one in symptoms if one not in later)
    return kept, tuple(dict.fromkeys(one.name for one in later))


def first_own_error(logs: Logs) -> TracebackSeen | None:
    """The first traceback that is neither an echo by its type nor by what it says."""
    echoed = {(one.path, one.line) for one in logs.signatures if one.failure in ECHOING}
    for told in logs.tracebacks:
        own = told.fatal and told.exception not in NOT_OWN and logs.steps_since(told) < 3
        if own and (told.path, told.line) not in echoed:
            return told
    return None
