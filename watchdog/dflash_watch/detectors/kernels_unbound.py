"""A run on GPUs says that fast kernels are missing and a slow path is taken.

Sees:       signatures of `kernels-missing` in the log, and GPUs that the run uses.
Means:      an optional package is not installed or does not load: a target is far slower.
Wrong when: the run uses the CPU, where the slow path is the only one.
Source:     playbooks/kernels-missing.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dflash_watch.detectors.base import Answer, Detector, Example, View, symptom
from dflash_watch.detectors.examples import example, frames, log
from dflash_watch.frame import RunSample
from dflash_watch.model import Severity, Source
from dflash_watch.units import clipped

FAILURE = "kernels-missing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Limits."""

    in_use: float = 0.05
    """Utilisation at which a card is in use, where nobody says whose it is."""


def detect(view: View, params: Params) -> Iterator[Answer]:
    """The first such line."""
    told = [one for one in view.window.logs.signatures if one.failure == FAILURE]
    if told and _uses_gpus(view, params):
        text = clipped(told[0].text)
        yield symptom("run", Severity.WARNING, min(told[0].t, view.now_t), text, Source.LOG)


def _uses_gpus(view: View, params: Params) -> bool:
    workers = view.window.manifest.get("workers") or ()
    if any(worker.get("device") for worker in workers):
        return any(str(worker.get("device") or "").startswith("cuda") for worker in workers)
    for track in view.window.gpus.tracks.values():
        listed = track.sample.processes or ()
        if any(view.window.tracks.process(one.pid) is not None for one in listed):
            return True
        if not listed and any((look.util or 0.0) >= params.in_use for look in track.looks):
            return True
    return False


LINE = "The fast path is not available because one of the required library is not installed.\n"


def _run(device: str) -> Example:
    workers = [{"name": "target-0", "role": "target", "device": device}]
    run = RunSample(state="found", how="run-dir", root_pid=10, manifest={"workers": workers})
    subject = "run" if device.startswith("cuda") else None
    return example(frames(2, run=run, logs=lambda i: log("" if i else LINE)), subject=subject)


def firing() -> Example:
    """On a GPU."""
    return _run("cuda:0")


def clear() -> Example:
    """On the CPU."""
    return _run("cpu")


DETECTOR = Detector(detect=detect, params=Params(), firing=firing, clear=clear)
