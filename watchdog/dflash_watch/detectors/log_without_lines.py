"""New text comes, but no line ever ends: a progress bar rewrites one line.

Sees:       carriage returns without line ends in the text of the newest looks.
Means:      tools that read lines see nothing; the run itself may be well.
Wrong when: a log of a single long line.
Source:     docs/frames.md, LogSample.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dflash_watch.detectors.base import Answer, Detector, Example, View, symptom
from dflash_watch.detectors.examples import example, frames, log
from dflash_watch.model import Severity, Source
from dflash_watch.units import duration


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Limits."""

    least_s: float = 8.0
    """For at least so long."""
    looks: int = 4
    """Looks that brought text, all without a line end."""


def detect(view: View, params: Params) -> Iterator[Answer]:
    """One symptom a log."""
    for track in view.window.logs.tracks.values():
        bare = []
        for mark in reversed(track.marks):
            if mark[1] or not mark[2]:
                break
            bare.append(mark[0])
        if len(bare) < params.looks or bare[0] - bare[-1] < params.least_s:
            continue
        text = f"only carriage returns for {duration(bare[0] - bare[-1])}: one line is rewritten"
        yield symptom(track.path, Severity.INFO, bare[-1], text, Source.LOG)


def firing() -> Example:
    """A bar."""
    bar = frames(10, logs=lambda i: log(f"\r{i}%"))
    return example(bar, subject="/runs/a/train.log")


def clear() -> Example:
    """A bar with a line now and then."""
    return example(frames(10, logs=lambda i: log(f"\r{i}%" + ("\n" if i % 3 == 0 else ""))))


DETECTOR = Detector(detect=detect, params=Params(), firing=firing, clear=clear)
