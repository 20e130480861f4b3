"""Figures of an allocator's complaint: what was asked for, and who has the memory."""

from __future__ import annotations

import re

import msgspec

_SIZE = r"(\d{1,9}(?:\.\d{1,6})?) ?(bytes|[KMGT]i?B)"
_SCALE = {"b": 1.0, "k": 2.0**10, "m": 2.0**20, "g": 2.0**30, "t": 2.0**40}
_ASKED = re.compile(rf"(?i)tried to allocate {_SIZE}")
_TOTAL = re.compile(rf"(?i)total capacity of {_SIZE}|{_SIZE} total capacity")
_FREE = re.compile(rf"(?i)of which {_SIZE} is free|{_SIZE} free\b")
_ALLOCATED = re.compile(rf"(?i){_SIZE} (?:is |already )allocated")
_RESERVED = re.compile(rf"(?i){_SIZE} reserved in total")
_UNUSED = re.compile(rf"(?i){_SIZE} is reserved by \w+ but unallocated")
_MINE = re.compile(rf"(?i)this process has {_SIZE}")


class Shortage(msgspec.Struct, frozen=True, kw_only=True):
    """An allocation that failed, bytes; None where the message does not say."""

    asked_bytes: float | None = None
    total_bytes: float | None = None
    free_bytes: float | None = None
    allocated_bytes: float | None = None
    """In tensors of this process."""
    unused_bytes: float | None = None
    """Reserved by this process's allocator and not in any tensor."""
    own_bytes: float | None = None
    """All that this process holds on the card."""

    @property
    def foreign_bytes(self) -> float | None:
        """What neither this process holds nor is free."""
        if self.total_bytes is None or self.free_bytes is None or self.own_bytes is None:
            return None
        return max(self.total_bytes - self.free_bytes - self.own_bytes, 0.0)


def parse_shortage(text: str) -> Shortage | None:
    """Figures of torch's message in any of its forms, None when the text has none."""
    asked = _bytes(_ASKED, text)
    if asked is None:
        return None
    allocated, unused = _bytes(_ALLOCATED, text), _bytes(_UNUSED, text)
    reserved = _bytes(_RESERVED, text)
    if reserved is None and allocated is not None and unused is not None:
        reserved = allocated + unused
    if unused is None and allocated is not None and reserved is not None:
        unused = max(reserved - allocated, 0.0)
    mine = _bytes(_MINE, text)
    own = max((one for one in (mine, reserved) if one is not None), default=None)
    return Shortage(
        asked_bytes=asked, total_bytes=_bytes(_TOTAL, text), free_bytes=_bytes(_FREE, text),
        allocated_bytes=allocated, unused_bytes=unused, own_bytes=own,
    )  # fmt: skip


def _bytes(pattern: re.Pattern[str], text: str) -> float | None:
    found = pattern.search(text)
    if found is None:
        return None
    parts = [part for part in found.groups() if part is not None]
    return float(parts[0]) * _SCALE[parts[1][0].lower()]
