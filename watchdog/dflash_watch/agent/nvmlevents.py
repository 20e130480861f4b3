"""Xids by the driver's own events: what happens from now on, also where no kernel log is readable.

The driver keeps events of a registered card until they are fetched, so the child asks once a look
and waits for nothing. What was before the registration is never told; the kernel log has that.
"""

from __future__ import annotations

import ctypes
from typing import Any, Dict, List, Optional

import pynvml

from dflash_watch.agent.nvmlerrors import field_error

XID_EVENT = 0x8
MOST_A_LOOK = 32
"""A card in trouble can tell hundreds; the rest comes with the next look."""


class Xids:
    """One event set over all GPUs of one NVML session."""

    def __init__(self) -> None:
        self._set: Any = None
        self._index_of: Dict[int, int] = {}
        self._refused: Dict[int, str] = {}

    def watch(self, index: int, handle: Any) -> Optional[str]:
        """Register a card once, however often it is named; why not, where the driver refuses."""
        address = _address(handle)
        if address in self._index_of:
            return self._refused.get(address)
        self._index_of[address] = index
        try:
            if self._set is None:
                self._set = pynvml.nvmlEventSetCreate()
            pynvml.nvmlDeviceRegisterEvents(handle, XID_EVENT, self._set)
        except pynvml.NVMLError as error:
            self._refused[address] = field_error(error)
        return self._refused.get(address)

    def read(self) -> Dict[int, List[int]]:
        """GPU index -> Xids since the last look, oldest first; empty where there are none."""
        found: Dict[int, List[int]] = {}
        for _ in range(MOST_A_LOOK if self._set is not None else 0):
            try:
                event = pynvml.nvmlEventSetWait_v2(self._set, 0)
            except pynvml.NVMLError:
                break  # none is left (timeout), or a card was lost: its row says so
            index = self._index_of.get(_address(event.device))
            if index is not None and event.eventType == XID_EVENT:
                found.setdefault(index, []).append(int(event.eventData))
        return found


def _address(handle: Any) -> int:
    """A device handle is a pointer that stays the same as long as NVML is open."""
    return ctypes.cast(handle, ctypes.c_void_p).value or 0
