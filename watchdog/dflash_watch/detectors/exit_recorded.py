"""The run wrote that it ends, and how.

Sees:       the `exit` event of the run directory.
Means:      the trainer's own last word.
Wrong when: the process is killed while it cleans up after that event.
Source:     docs/run-directory.md, "exit".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dflash_watch.detectors.base import Answer, Detector, Example, View, symptom
from dflash_watch.detectors.examples import T0, example, frames
from dflash_watch.model import Severity, Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """None."""


def detect(view: View, _params: Params) -> Iterator[Answer]:
    """The exit event, as it stands."""
    event = view.window.told.exit
    if event is None:
        return
    failed = event.get("reason") == "failed" or event.get("code") not in {0, 75, None}
    severity = Severity.CRITICAL if failed else Severity.INFO
    text = f"exit event: {event.get('reason')}, code {event.get('code')}"
    if event.get("message"):
        text += f": {event['message']}"
    since_t = float(event.get("t") or view.now_t)
    yield symptom("run", severity, since_t, text, Source.EVENTS)


def firing() -> Example:
    """Done."""
    event = {"kind": "exit", "seq": 1, "t": T0, "code": 0, "reason": "done"}
    return example(frames(2, events=(event,)), subject="run")


def clear() -> Example:
    """Other events only."""
    event = {"kind": "heartbeat", "seq": 1, "t": T0, "step": 4}
    return example(frames(2, events=(event,)))


DETECTOR = Detector(detect=detect, params=Params(), firing=firing, clear=clear)
