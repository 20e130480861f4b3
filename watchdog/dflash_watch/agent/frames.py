"""Frames of many threads within a bound: innermost and outermost ones stay, what is cut is said."""

from __future__ import annotations

import sys
from typing import Any, List, Optional

Frame = List[Any]
"""Function, file, line; innermost first."""
MAX_FRAMES = 200
"""Of one thread."""
MAX_TOTAL = 12_000
"""Of one sample; threads beyond keep FEW."""
FEW = 16
OUTERMOST = 5
"""What a thread is for shows in its outermost frames: these are kept."""
MAX_THREADS = 4096
MAX_WORD = 400
"""Characters of a function's or a file's name."""


class Room:
    """What one sample has room for; counts what it leaves out."""

    def __init__(self) -> None:
        self._left = MAX_TOTAL
        self._cut_threads = self._cut_frames = self._lost_threads = 0
        self._threads = 0

    def fit(self, frames: List[Frame]) -> List[Frame]:
        """The frames that are kept of one thread, with a line in place of the rest."""
        most = MAX_FRAMES if self._left >= len(frames) else FEW
        kept = cut(frames, most)
        if len(kept) < len(frames):
            self._cut_threads += 1
            self._cut_frames += len(frames) - most
        self._left -= min(len(kept), self._left)
        return kept

    def admit(self) -> bool:
        """Whether one more thread is taken."""
        self._threads += 1
        if self._threads > MAX_THREADS:
            self._lost_threads += 1
        return self._threads <= MAX_THREADS

    def note(self) -> Optional[str]:
        """What was left out, for people; None when nothing was."""
        parts = []
        if self._cut_frames:
            parts.append(f"{self._cut_frames} middle frames of {self._cut_threads} threads")
        if self._lost_threads:
            parts.append(f"{self._lost_threads} threads")
        return "left out, too many: " + " and ".join(parts) if parts else None


def cut(frames: List[Frame], most: int) -> List[Frame]:
    """At most `most` frames and one line that says how many are missing between them."""
    if len(frames) <= most:
        return frames
    missing = len(frames) - most
    return [
        *frames[: most - OUTERMOST],
        [f"... {missing} frames left out ...", "", 0],
        *frames[-OUTERMOST:],
    ]


def frame(name: Any, file: Any, line: Any) -> Frame:
    """One frame; what is missing is `?` and 0."""
    number = line if isinstance(line, int) and not isinstance(line, bool) else 0
    return [_word(name), _word(file), number]


def _word(value: Any) -> str:
    text = value if isinstance(value, str) and value else "?"
    return sys.intern(text[:MAX_WORD])
