"""Lines begin in their middle: whoever reads the log stands at a wrong place in it.

Sees:       the newest lines, each only the end of what such lines said before.
Means:      the reader kept its place while the file was rotated or cut; the run itself may be well.
Wrong when: the run really prints bare numbers after full lines of the same form.
Source:     docs/verdicts.md, "log".
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dflash_watch.detectors.base import Answer, Detector, Example, View, symptom
from dflash_watch.detectors.examples import example, frames, log
from dflash_watch.model import Severity, Source

_PREFIX = re.compile(r"^\s*(?:[(\[][^)\]]{1,80}[)\]]:?|\S{1,40} ?\|)\s*")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Limits."""

    lines: int = 80
    """Newest lines that are looked at."""
    whole: int = 3
    """Whole lines of a form that have to stand before."""
    torn: int = 3
    """Torn lines in a row, up to the newest."""
    share: float = 0.5
    """A torn line is at most so much of a whole one."""


def detect(view: View, params: Params) -> Iterator[Answer]:
    """One symptom a log."""
    for track in view.window.logs.tracks.values():
        shapes = [_shape(line) for line in list(track.lines)[-params.lines :]]
        torn = _torn_at_end(shapes, params)
        if torn >= params.torn:
            since_t = track.grown_t if track.grown_t is not None else view.now_t
            text = (
                f"the newest {torn} lines begin in their middle: {track.lines[-1].strip()[:80]!r}"
            )
            yield symptom(track.path, Severity.WARNING, min(since_t, view.now_t), text, Source.LOG)


def _shape(line: str) -> str:
    return _NUMBER.sub("#", _PREFIX.sub("", line)).strip()


def _torn_at_end(shapes: Sequence[str], params: Params) -> int:
    whole = [shape for shape, count in Counter(shapes).items() if count >= params.whole]
    torn = 0
    for shape in reversed(shapes):
        longer = (one for one in whole if len(shape) <= params.share * len(one))
        if not shape or not any(one.endswith(f" {shape}") for one in longer):
            break
        torn += 1
    return torn


def firing() -> Example:
    """Ends of lines that were whole before."""
    said = "".join(f"(w pid={i}) worker: count = 45\n" for i in range(4))
    return example(frames(2, logs=log(said + "(w pid=8) 30\n" * 4)), subject="/runs/a/train.log")


def clear() -> Example:
    """Whole lines only."""
    said = "".join(f"(w pid={i}) worker: count = 45\n" for i in range(8))
    return example(frames(2, logs=log(said)))


DETECTOR = Detector(detect=detect, params=Params(), firing=firing, clear=clear)
