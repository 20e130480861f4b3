"""New lines of events.jsonl, already parsed; the torn last line waits."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

from dflash_events import RunDirError
from dflash_events.events import EventTail

FIRST_BYTES = 131072
FRAME_BYTES = 131072


class EventReader:
    """Follows the events of the run whose file it was told last."""

    def __init__(self) -> None:
        self._path: Optional[str] = None
        self._tail: Optional[EventTail] = None
        self._newest_seq = -1
        self._skip_to = -1

    def read(self, path: str) -> Tuple[Optional[List[Dict[str, Any]]], Optional[str]]:
        """New events, and why there are none or what is odd about them."""
        if self._tail is None or path != self._path:
            self.close()
            self._path, self._tail = path, EventTail(path, last_bytes=FIRST_BYTES)
        try:
            got = self._tail.read(FRAME_BYTES)
        except RunDirError as error:
            return None, str(error)
        events = got.events
        if got.note is not None:
            self._skip_to = -1
        elif self._skip_to >= 0:
            events = [event for event in events if _seq(event) > self._skip_to]
        self._newest_seq = max(
            [self._newest_seq if got.note is None else -1] + [_seq(event) for event in events]
        )
        note = got.note
        if got.garbage:
            note = f"{got.garbage} lines that are no events" + ("; " + note if note else "")
        return events, note

    def state(self) -> Dict[str, Any]:
        """What a successor needs to go on where this one stopped."""
        return {"path": self._path, "seq": self._newest_seq}

    def restore(self, state: Dict[str, Any]) -> None:
        """Leave out events that a predecessor has already handed over."""
        self._newest_seq = self._skip_to = int(state.get("seq", -1))

    def close(self) -> None:
        """Let go of the file."""
        if self._tail is not None:
            self._tail.close()
        self._tail, self._newest_seq, self._skip_to = (
            None,
            -1,
            self._skip_to if self._path is None else -1,
        )


def _seq(event: Dict[str, Any]) -> int:
    seq = event.get("seq")
    return seq if isinstance(seq, int) else 1 << 62
