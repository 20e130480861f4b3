"""Any program with standard input and output is a way in: `ssh box`, `kubectl exec -i pod --`."""

from __future__ import annotations

from collections.abc import Sequence

from dflash_watch.transport.base import Host, Stream, TransportError
from dflash_watch.transport.quoting import with_prefix


class PrefixHost:
    """The inside of a prefix, on another host or on this machine."""

    def __init__(self, outer: Host, prefix: Sequence[str]) -> None:
        self._outer, self._prefix = outer, tuple(prefix)

    def open(self, argv: Sequence[str], timeout_s: float) -> Stream:
        """Start a command behind the prefix."""
        return self._outer.open(with_prefix(self._prefix, argv), timeout_s)

    def trouble(self, timeout_s: float) -> TransportError | None:
        """The way to where the prefix starts; what lies behind it cannot be told apart."""
        return self._outer.trouble(timeout_s)

    def close(self) -> None:
        """Let go of the outer host."""
        self._outer.close()
