"""The kernel killed a process of this run for memory.

Sees:       kernel lines that name a process of the run, the host's in its own numbers; the
            out-of-memory counter of its cgroup that rose while a process of it vanished or ended by
            signal 9.
Means:      host memory, or the limit of the container, was used up.
Wrong when: somebody sent signal 9 by hand in the very seconds in which another process of the
            same cgroup was killed for memory.
Source:     cgroup v2 memory.events; kernel messages of the out-of-memory killer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from dflash_watch.detectors.base import Answer, Detector, Example, View, symptom
from dflash_watch.detectors.examples import example, frames, process
from dflash_watch.frame import HostSample
from dflash_watch.model import Severity, Source
from dflash_watch.units import data_size
from dflash_watch.window.tracks import ProcessTrack

_VICTIM = re.compile(r"(?:[Kk]illed process |\bpid[= ])(\d+)\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Limits."""

    apart_s: float = 6.0
    """Between the counter's rise and the end of a process of the run."""


def detect(view: View, params: Params) -> Iterator[Answer]:
    """By the kernel's own words, else by the counter and who was gone at that moment."""
    told = _by_kernel(view) or _by_counter(view, params)
    if told is not None:
        who, since_t, text = told
        subject = "run" if who.sample.pid == view.window.main_pid() else f"process {who.sample.pid}"
        yield symptom(subject, Severity.CRITICAL, since_t, text, Source.HOST)


def _ended(view: View) -> list[ProcessTrack]:
    """Processes of the run that are gone, or zombies; the newest last."""
    window, tracks = view.window, view.window.tracks
    # The agent is killed first: the one that follows it finds the run gone, and no list of it.
    main = window.main() if window.is_gone() else None
    return [*tracks.gone_processes, *tracks.in_state("ZX"), *([main] if main is not None else [])]


def _by_kernel(view: View) -> tuple[ProcessTrack, float, str] | None:
    ended = {one.sample.pid: one for one in _ended(view)}
    told = view.window.hostside.killed(ended)
    if told is not None:
        victim = ended[told[0]]
        t = min(victim.track.gone_t or view.now_t, view.now_t)
        return victim, t, f"kernel of the host: {told[1][:160]}"
    for line in reversed(view.window.kernel_log.lines):
        found = _VICTIM.search(line) if re.search(r"[Oo]ut of memory|oom-kill", line) else None
        who = ended.get(int(found[1])) if found else None
        if who is not None:
            return who, min(who.track.gone_t or view.now_t, view.now_t), f"kernel: {line[:160]}"
    return None


def _by_counter(view: View, params: Params) -> tuple[ProcessTrack, float, str] | None:
    rise = view.window.kills.rise_t
    if rise is None:
        return None
    for who in reversed(_ended(view)):
        is_main = who.sample.pid == view.window.main_pid()
        gone_t = view.window.gone_t() if is_main else None
        ended_t = who.track.gone_t or gone_t or who.track.state_since_t
        code = who.sample.exit_code
        if abs(ended_t - rise) > params.apart_s or (code is not None and code & 0x7F != 9):
            continue
        text = f"the out-of-memory counter of its cgroup rose as process {who.sample.pid} ended"
        if who.sample.rss_bytes:
            text += f", which held {data_size(who.sample.rss_bytes)}"
        return who, min(ended_t, view.now_t), text
    return None


def firing() -> Example:
    """The main process is gone and the counter is one higher."""
    return example(
        frames(3, host=HostSample(oom_kills=0)),
        frames(3, start=3, host=HostSample(oom_kills=1), processes=()),
        subject="run",
    )


def clear() -> Example:
    """Somebody else's process in the same cgroup."""
    return example(
        frames(3, host=HostSample(oom_kills=0)),
        frames(3, start=3, host=HostSample(oom_kills=1), processes=lambda i: (process(i),)),
    )


DETECTOR = Detector(detect=detect, params=Params(), firing=firing, clear=clear)
