"""What launchers and log collectors write before each line, and whose line it is.

torchrun, torch's own rank, Ray, `srun -l`, `mpirun --tag-output`, docker compose, `kubectl logs
--timestamps`, journald, the `>` of a quoting mail; several may be stacked. One line in, no memory.
"""

from __future__ import annotations

import re
from typing import NamedTuple

MOST = 4
"""Prefixes stacked before one line."""

_ONE = re.compile(
    r"\s?\[?(?:rank|default|Rank )(?P<rank>\d{1,6})\]?: ?"
    r"|> ?"
    r"|\((?P<actor>[\w.]{1,60}) pid=(?P<pid>\d{1,10})[^)]{0,80}\) ?"
    r"|\s{0,5}(?P<task>\d{1,5}): "
    r"|\[\d{1,6},(?P<mpi>\d{1,6})\]<std(?:out|err)>: ?"
    r"|(?P<service>[A-Za-z][\w.-]{0,60}) {0,20}\| ?"
    r"|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d) (?:std(?:out|err) [FP] )?"
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d [\w.-]{1,64} (?P<unit>[\w.@-]{1,64})\[\d{1,10}\]: "
)


class Prefix(NamedTuple):
    """Whose line it is; all empty when nothing stands before it."""

    key: str = ""
    """Equal for lines of one process; moments left out."""
    rank: int | None = None
    pid: int = 0
    name: str = ""
    """Of the actor or service, where no rank is told."""


NO_PREFIX = Prefix()


def split_prefix(line: str) -> tuple[Prefix, str]:
    """The prefixes of a line, and the line behind them."""
    found = _ONE.match(line)
    if found is None:
        return NO_PREFIX, line
    keys: list[str] = []
    rank: int | None = None
    pid, name, at = 0, "", 0
    for _ in range(MOST):
        if found is None or found.end() == at:
            break
        at = found.end()
        number = found["rank"] or found["mpi"] or found["task"]
        rank = int(number) if number else rank
        pid = int(found["pid"] or pid)
        name = found["actor"] or found["service"] or name
        kinds = ("rank", number), ("pid", found["pid"]), ("of", found["service"] or found["unit"])
        keys += [f"{kind} {value}" for kind, value in kinds if value]
        found = _ONE.match(line, at)
    return Prefix("/".join(keys), rank, pid, f"{name} pid {pid}" if pid else name), line[at:]
