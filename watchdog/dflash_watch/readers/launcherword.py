"""What a launcher says of the rank that failed first, as torch.distributed.elastic does. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

FIRST = re.compile(r"Root Cause \(first observed failure\)")
RANK = re.compile(r"^\s*rank\s*:\s*(\d{1,6})\b")
EXIT = re.compile(r"^\s*exitcode\s*:\s*(-?\d{1,4})\s+\(pid:\s*(\d+)\)")
WITHIN = 12
"""Lines of the summary."""


class FirstFailure(NamedTuple):
    """The rank that ended first, and how; a negative code is a signal."""

    rank: int
    code: int
    pid: int

    @property
    def text(self) -> str:
        """In words."""
        how = f"signal {-self.code}" if self.code < 0 else f"exit code {self.code}"
        return f"rank-{self.rank} (process {self.pid}) ended first, by {how}, says its launcher"


def first_failure(lines: Sequence[str]) -> FirstFailure | None:
    """The newest summary's root cause; None where there is none, or only part of one."""
    places = [number for number, line in enumerate(lines) if FIRST.search(line)]
    if not places:
        return None
    piece = lines[places[-1] : places[-1] + WITHIN]
    rank = next((found for line in piece if (found := RANK.search(line))), None)
    ended = next((found for line in piece if (found := EXIT.search(line))), None)
    if rank is None or ended is None:
        return None
    return FirstFailure(int(rank[1]), int(ended[1]), int(ended[2]))
