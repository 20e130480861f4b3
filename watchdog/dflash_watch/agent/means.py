"""What a stack sample may be taken with: light, since the agent loads it long before any sample."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Tuple

TOOL_S = 5.0
"""Kill timer of one run of a sampler."""
NATIVE_S = 3.0
"""The same for one that stops the process: a thread may fall into D after the look."""
BUDGET_S = 12.0
"""No new attempt at one sample begins later than this."""


NEEDS_TOOL = "needs py-spy"
"""Reply to a request that the watcher's own py-spy would answer better."""


class Declared(NamedTuple):
    """What run.json says of faulthandler: a signal's number, and the file that it writes to."""

    number: int
    path: Optional[str]
    """None: standard error, if that is a file."""


class Means(NamedTuple):
    """What a sample may be taken with."""

    near: Tuple[int, ...] = ()
    """Processes whose environments are searched for tools, beside the sampled one's own."""
    pushed: Optional[str] = None
    """Path of the watcher's own py-spy."""
    not_pushed: Optional[str] = None
    """Why there is none."""
    can_push: bool = False
    """The watcher would send one: ask for it before anything less is taken."""
    declared: Optional[Declared] = None
    native: bool = False
    """C frames too: stops the process meanwhile, so only when somebody asked for it."""
    directories: Optional[List[str]] = None
    """Searched for tools; None: where the run's environment and this machine keep them."""


def declared_in(manifest: Optional[Dict[str, Any]]) -> Optional[Declared]:
    """Out of run.json; None when it declares no signal."""
    number = (manifest or {}).get("faulthandler_signal")
    path = (manifest or {}).get("faulthandler_file")
    if not isinstance(number, int) or isinstance(number, bool) or not 0 < number < 65:
        return None
    return Declared(number, path if isinstance(path, str) and path else None)
