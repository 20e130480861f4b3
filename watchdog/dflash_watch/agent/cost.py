"""What the agent itself costs, so that it can be held against it."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Optional

from dflash_watch.agent import child as children
from dflash_watch.agent import proc
from dflash_watch.agent.memory import READS

PSS_EVERY_S, FIRST_PSS_AFTER_S = 60.0, 5.0


class CostMeter:
    """Ticks and memory of the agent and its children.

    Args:
        now_s: CLOCK_MONOTONIC.
    """

    def __init__(self, now_s: float) -> None:
        self._ticks = 0
        self._pss_bytes: Optional[int] = None
        # Not at once: children load their code first.
        self._pss_read_s = now_s - PSS_EVERY_S + FIRST_PSS_AFTER_S

    def read(
        self, started_s: float, now_s: float, pids: List[int], left_out: int
    ) -> Dict[str, Any]:
        """`frame.AgentCost`.

        Args:
            started_s: when this look began.
            now_s: CLOCK_MONOTONIC.
            pids: children that may run.
            left_out: looks not taken so far.
        """
        if now_s - self._pss_read_s >= PSS_EVERY_S:
            self._pss_read_s = now_s
            self._pss_bytes = read_pss([os.getpid(), *pids])
        READS.rest()
        own = os.times()
        spent_s = own.user + own.system + own.children_user + own.children_system
        # A child that was ended counts only once it has been taken note of: never let the sum fall.
        ticks = round(spent_s * proc.TICKS_PER_S) + children.cpu_ticks(pids)
        self._ticks = max(self._ticks, ticks)
        cost: Dict[str, Any] = {
            "cpu_ticks": self._ticks,
            "pss_bytes": self._pss_bytes,
            "children": len(pids),
            "frame_s": round(now_s - started_s, 4),
            "frames_left_out": left_out,
        }
        return {key: value for key, value in cost.items() if value is not None}


def read_pss(pids: List[int]) -> Optional[int]:
    """Proportional set size of these processes, bytes; None where the kernel does not tell."""
    total = 0
    for pid in pids:
        # Through the helper: the map of a child that hangs may be held as well.
        for line in (READS.read("/proc", pid, "smaps_rollup", proc.SHORT) or b"").splitlines():
            if line.startswith(b"Pss:"):
                total += int(line.split()[1]) * 1024
                break
        else:
            return None
    return total
