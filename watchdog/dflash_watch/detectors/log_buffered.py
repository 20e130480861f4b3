"""Steps go on, and the log does not show them: it is kept in a buffer.

Sees:       a regular file that grows by whole blocks after long pauses, stops in mid-line, or
            does not grow at all, while steps are counted elsewhere or work moves.
Means:      the process writes block-buffered; what it says comes minutes late.
Wrong when: a run that prints rarely, in a file that happens to end at a page.
Source:     docs/verdicts.md, "log". C libraries write whole pages; Python hands on whole lines:
            about 8 KiB, up to a line more from 3.13 on, fifteen or sixteen of those from 3.14 on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dflash_watch.detectors.base import Answer, Detector, Example, View, symptom
from dflash_watch.detectors.examples import beats, example, frames, log, worker
from dflash_watch.frame import LogSample
from dflash_watch.model import Severity, Source
from dflash_watch.units import duration
from dflash_watch.window.logs import PAGE_BYTES, LogTrack


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Limits."""

    least_s: float = 8.0
    """Silence of the log that counts while steps go on."""
    alike: float = 1.6
    """Cores in use then and now differ by no more than this factor."""
    blocks: tuple[tuple[int, int], ...] = ((8192 - 512, 8192 + 512), (15 * 8192, 16 * 8192))
    """Smallest and largest of what Python hands on at once, bytes; lines up to 512."""


def detect(view: View, params: Params) -> Iterator[Answer]:
    """The main log, when it is a file and not written unbuffered."""
    track = view.window.logs.main()
    if track is None or track.sample.unbuffered or track.sample.is_tty:
        return
    silent_s = view.window.data_t - (track.grown_t or view.now_t)
    in_blocks = _in_blocks(view, track, params)
    if (silent_s < params.least_s and not in_blocks) or not _runs(view):
        return
    size = track.sample.size_bytes
    signs = in_blocks or _signs(track) or _as_before(view, track, params)
    if signs is not None:
        told = "" if size is None else f" at {size} bytes"
        text = f"log silent for {duration(silent_s)}{told}, {signs}, while the run works on"
        since_t = track.grown_t or view.now_t
        yield symptom(track.path, Severity.WARNING, since_t, text, Source.LOG)


def _runs(view: View) -> bool:
    told = view.progress.first_step_t is not None and not view.is_overdue()
    return told or (view.progress.phase is None and view.progress.work.moves is True)


def _in_blocks(view: View, track: LogTrack, params: Params) -> str | None:
    """Whether its newest text came as one block after a long pause; holds between blocks too."""
    if len(track.growths) < 2:
        return None
    (before_t, _, _), (t, size, _) = list(track.growths)[-2:]
    pause_s = view.window.sight.seen_s(before_t, t)
    if pause_s < params.least_s or not _is_block(size, params):
        return None
    return f"it comes in blocks of {size} bytes, about one in {duration(pause_s)}"


def _is_block(size: int, params: Params) -> bool:
    if size > 0 and size % PAGE_BYTES == 0:
        return True
    return any(least <= size <= most for least, most in params.blocks)


def _signs(track: LogTrack) -> str | None:
    size = track.sample.size_bytes
    if size == 0:
        return "empty so far"
    if size is not None and size % PAGE_BYTES == 0:
        return "a whole number of pages"
    sizes = [growth[1] for growth in list(track.growths)[1:]]
    if len(sizes) >= 2 and all(one % PAGE_BYTES == 0 for one in sizes):
        return "it grows by whole pages"
    if track.ended_line is False and track.rewritten is None:
        return "it ends in mid-line"
    return None


def _as_before(view: View, track: LogTrack, params: Params) -> str | None:
    """Only the words stopped: as many cores as while steps were seen, and stacks that move."""
    usual, now = view.progress.usual_cores, view.progress.work.cpu_cores
    by_log = view.progress.source == "log" and view.is_overdue()
    if not by_log or not usual or now is None or track.sample.unbuffered is None:
        return None
    compared = view.comparison
    frozen = compared is not None and not compared.that("moving", "working")
    if frozen or not 1 / params.alike <= now / usual <= params.alike:
        return None
    return f"{now:.1f} cores in use as before"


def firing() -> Example:
    """Steps by beats; a block of lines that fills a buffer, each time after ten seconds."""
    line = "step 100/1000 loss 2.5000 tok/s 9000\n"
    block = line * (8192 // len(line))

    def text(i: int) -> tuple[LogSample, ...]:
        size = len(block) * (i // 10)
        return log(block if i in {10, 20} else "", size_bytes=size, unbuffered=False)

    steps = frames(22, beats=lambda i: beats(worker("drafter-0", step=i + 1)), logs=text)
    return example(steps, subject="/runs/a/train.log")


def clear() -> Example:
    """Steps by beats, a file that ends in a whole line: it just prints rarely."""

    def text(i: int) -> tuple[object, ...]:
        return log("step 1\n" if i == 0 else "", size_bytes=7, unbuffered=False)

    return example(frames(12, beats=lambda i: beats(worker("drafter-0", step=i + 1)), logs=text))


DETECTOR = Detector(detect=detect, params=Params(), firing=firing, clear=clear)
