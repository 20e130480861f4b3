"""A process of the run has used up its file descriptors.

Sees:       open descriptors of each process against its own soft limit.
Means:      the next file, socket or worker pipe cannot be opened ("Too many open files").
Wrong when: a program opens exactly as many as it may and keeps them.
Source:     proc(5), /proc/PID/fd and /proc/PID/limits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dflash_watch.detectors.base import Answer, Detector, Example, View, missing, symptom
from dflash_watch.detectors.examples import example, frames, process
from dflash_watch.model import Severity, Source
from dflash_watch.units import percent


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Limits."""

    raise_ratio: float = 0.97
    keep_ratio: float = 0.9
    """Between the two an incident is kept alive, none is opened."""


def detect(view: View, params: Params) -> Iterator[Answer]:
    """The main process as `run`, others by their number."""
    window = view.window
    samples = [one.sample for one in window.tracks.processes.values()]
    known = [one for one in samples if one.fd_limit and one.num_fds is not None]
    if samples and not known:
        yield missing("run", "open descriptors and their limit")
    for one in known:
        ratio = (one.num_fds or 0) / (one.fd_limit or 1)
        if ratio < params.keep_ratio:
            continue
        subject = "run" if one.pid == window.main_pid() else f"process {one.pid}"
        text = f"process {one.pid} has {one.num_fds} of {one.fd_limit} descriptors open"
        text += f" ({percent(ratio)})"
        starts = ratio >= params.raise_ratio
        yield symptom(subject, Severity.WARNING, view.now_t, text, Source.PROCESS, starts=starts)


def firing() -> Example:
    """All but one are open."""
    full = frames(3, processes=lambda i: (process(i, num_fds=1023, fd_limit=1024),))
    return example(full, subject="run")


def clear() -> Example:
    """Half of them."""
    return example(frames(3, processes=lambda i: (process(i, num_fds=512, fd_limit=1024),)))


DETECTOR = Detector(detect=detect, params=Params(), firing=firing, clear=clear)
