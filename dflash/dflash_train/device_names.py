"""Lists of devices as people write them; imports no torch."""

from __future__ import annotations

import re

from dflash_train.errors import UsageError

PART = re.compile(r"(cpu|cuda)(?::(\d+)(?:-(\d+))?)?(?:x(\d+))?")
MOST = 1024


def expand(text: str, key: str) -> tuple[str, ...]:
    """`cuda:0-4`, `cuda:0,cuda:2`, `cpux2` to one name a replica; bare `cuda` is `cuda:0`.

    Args:
        text: parts separated by commas.
        key: what to call it in an error.

    Raises:
        UsageError: a part that names no device, or a range that runs backwards.
    """
    found: list[str] = []
    for part in text.split(","):
        match = PART.fullmatch(part.strip())
        if match is None or (match[1] == "cpu" and match[2]):
            raise UsageError(
                f"{key}: got {part.strip()!r}, expected a device such as cpu, cuda:0 or cuda:0-4"
            )
        first = int(match[2] or 0)
        last = int(match[3] or first)
        times = int(match[4] or 1)
        if last < first or times < 1 or (last - first + 1) * times > MOST:
            raise UsageError(f"{key}: {part.strip()!r} names no devices, expected cuda:LOW-HIGH")
        names = ["cpu"] if match[1] == "cpu" else [f"cuda:{i}" for i in range(first, last + 1)]
        found += names * times
    return tuple(found)
