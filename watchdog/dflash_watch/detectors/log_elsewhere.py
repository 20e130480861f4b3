"""The file one looks at is not the file the process writes.

Sees:       path and inode behind the process's own descriptor against the path that is watched.
Means:      renamed, replaced, deleted, or copied and cut: the watched file tells nothing new.
Wrong when: somebody asked for the log of another run on purpose.
Source:     docs/frames.md, LogSample.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dflash_watch.detectors.base import Answer, Detector, Example, View, symptom
from dflash_watch.detectors.examples import example, frames, log
from dflash_watch.model import Severity, Source
from dflash_watch.window.logs import LogTrack


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Limits."""

    keep_s: float = 300.0
    """For how long a cut is worth a line."""


def detect(view: View, params: Params) -> Iterator[Answer]:
    """One symptom a log that is elsewhere."""
    for track in view.window.logs.tracks.values():
        text = _told(track)
        if text is not None:
            since_t = track.elsewhere_since_t or view.now_t
            yield symptom(track.path, Severity.WARNING, since_t, text, Source.LOG)
        elif track.truncated_t is not None and view.now_t - track.truncated_t < params.keep_s:
            text = f"{track.path} was cut to nothing while the process writes on"
            yield symptom(track.path, Severity.WARNING, track.truncated_t, text, Source.LOG)


def _told(track: LogTrack) -> str | None:
    sample = track.sample
    watched = sample.watched_path or "the watched log"
    if sample.deleted or sample.path_state == "deleted":
        return f"the log is deleted; the process still writes it ({sample.via})"
    if sample.path_state in {"moved", "missing", "other-file"}:
        return f"the process writes {sample.path} ({sample.via}), not {watched}"
    return None


def firing() -> Example:
    """Renamed away."""
    moved = log("x\n", path="/runs/a/train.log.1", path_state="moved")
    return example(frames(2, logs=moved), subject="/runs/a/train.log.1")


def clear() -> Example:
    """Where it should be."""
    return example(frames(2, logs=log("step 1\n")))


DETECTOR = Detector(detect=detect, params=Params(), firing=firing, clear=clear)
