"""How long to wait before the next attempt."""

from __future__ import annotations

import random
from collections.abc import Callable

STEPS_S = (1.0, 2.0, 4.0, 6.0)
"""The last one repeats: a cure is seen, and the agent there again, within ten seconds."""
LEAST_S = 0.5
"""Between two attempts, however long the first one took."""
STEADY_S = 10.0
"""An agent that was there for so long begins the steps anew; one that dies at once does not."""
SPREAD = 0.2


def delay_s(attempt: int, spent_s: float = 0.0, dice: Callable[[], float] = random.random) -> float:
    """Seconds before attempt `attempt` (0 is the first retry), spread by a fifth either way.

    Many watchers of one host shall not come back at the same moment.

    Args:
        attempt: how many have failed since all was well.
        spent_s: how long the failed one took to fail; that much has been waited already.
        dice: 0 to 1.
    """
    step = max(STEPS_S[min(attempt, len(STEPS_S) - 1)] - spent_s, LEAST_S)
    return step * (1 + SPREAD * (2 * dice() - 1))
