"""The log stopped at a line after which a run is known to stand.

Sees:       signatures of the playbooks (`where = "end"`), searched in the last lines of the log.
Means:      what the signature's own `meaning` says; nothing while the log still grows.
Wrong when: the next line only takes long.
Source:     front matter of playbooks, `[[signature]]`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from dflash_watch.detectors.base import Answer, Detector, Example, View, symptom
from dflash_watch.detectors.examples import example, frames, log
from dflash_watch.model import Severity, Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Limits."""

    silent_s: float = 60.0
    """Silence after which the last line is the last."""


def detect(view: View, params: Params) -> Iterator[Answer]:
    """One symptom a failure."""
    logs = view.window.logs
    silent_s, track = logs.silent_s(view.window.data_t), logs.main()
    if track is None or silent_s is None or not track.lines:
        return
    if silent_s < params.silent_s and not track.sample.ended:
        return
    since_t = view.now_t - silent_s
    for signature in view.window.signs.at_end(track.lines):
        text = f"the log ends at {track.lines[-1].strip()[:160]!r}"
        text += f" ({signature.meaning})" if signature.meaning else ""
        severity = Severity.WARNING if signature.grave else Severity.INFO
        answer = symptom("run", severity, since_t, text, Source.LOG)
        yield msgspec.structs.replace(answer, name=f"log-end-{signature.failure}")


def firing() -> Example:
    """The last line is one that the example signature names, and a minute passes."""
    said = frames(2, logs=log("Using /c/torch_extensions as PyTorch extensions root...\n"))
    return example(said, frames(70, start=2, logs=log("")), subject="run")


def clear() -> Example:
    """The same line, just now."""
    return example(frames(2, logs=log("Using /c/torch_extensions as PyTorch extensions root...\n")))


DETECTOR = Detector(detect=detect, params=Params(), firing=firing, clear=clear, names_many=True)
