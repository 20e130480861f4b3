"""How long to wait before the next attempt."""

from __future__ import annotations

import random
from collections.abc import Callable

STEPS_S = (1.0, 2.0, 4.0, 8.0)
"""The last one repeats: a cure is seen within ten seconds."""
SPREAD = 0.2


def delay_s(attempt: int, dice: Callable[[], float] = random.random) -> float:
    """Seconds before attempt `attempt` (0 is the first retry), spread by a fifth either way.

    Many watchers of one host shall not come back at the same moment.
    """
    step = STEPS_S[min(attempt, len(STEPS_S) - 1)]
    return step * (1 + SPREAD * (2 * dice() - 1))
