"""The run said it is done, and its process is still there.

Sees:       exit event or closing words in the log, and the main process some time later.
Means:      clean-up hangs: a thread that is no daemon, a process group, a worker that never ends.
Wrong when: a large last upload or checkpoint goes on after the closing words; an interpreter
            that takes a gigabyte apart on a busy machine (a second of work took 19 s).
Source:     docs/run-directory.md, "exit".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dflash_watch.detectors.base import Answer, Detector, Example, View, symptom
from dflash_watch.detectors.examples import T0, example, frames, still
from dflash_watch.model import Severity, Source
from dflash_watch.units import duration
from dflash_watch.window.tracks import ZOMBIE


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Limits."""

    after_event_s: float = 10.0
    """The exit event is the trainer's last act."""
    after_words_s: float = 15.0
    """Closing words may stand before a last save."""
    while_it_works_s: float = 180.0
    """After the exit event, while the process computes or waits for a core."""


def detect(view: View, params: Params) -> Iterator[Answer]:
    """Still there after its own last word."""
    window = view.window
    main = window.main()
    if window.is_gone() or main is None or main.track.state in ZOMBIE:
        return
    event, words = window.told.exit, window.logs.done
    if words is not None and words.how == "bare":
        words = None
    if event is not None:
        said_t, limit_s, said = float(event.get("t") or 0.0), params.after_event_s, "exit event"
    elif words is not None:
        said_t, limit_s, said = words.t, params.after_words_s, f"log says {words.text!r}"
    else:
        return
    moves = bool(view.progress.work.moves) or main.track.state == "R"
    if event is not None and moves:
        limit_s = params.while_it_works_s
    waited_s = window.sight.seen_s(said_t, view.now_t)
    if waited_s <= limit_s:
        return
    text = f"{said} {duration(waited_s)} ago, process {window.main_pid()} is still there"
    yield symptom(
        "run", Severity.WARNING, said_t, text, Source.PROCESS, starts=event is not None or not moves
    )


def firing() -> Example:
    """Twelve seconds after the exit event, and nothing moves."""
    event = {"kind": "exit", "seq": 1, "t": T0, "code": 0, "reason": "done"}
    return example(frames(13, events=(event,), processes=still), subject="run")


def clear() -> Example:
    """Twelve seconds after it, and the process still takes itself apart."""
    event = {"kind": "exit", "seq": 1, "t": T0, "code": 0, "reason": "done"}
    return example(frames(13, events=(event,)))


DETECTOR = Detector(detect=detect, params=Params(), firing=firing, clear=clear)
