"""The process that is looked at only waits for the one that works, which runs elsewhere.

Sees:       the commands of the watched tree: a client of another machine or container, a viewer, a
            shell without anything to run; stacks of a worker that waits for orders nobody gives.
Means:      nothing can be said of the run from here: look where it really is.
Wrong when: the client itself does the work (a shell that trains by its own built-ins).
Source:     proc(5); readers/places.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from dflash_watch.detectors.base import Answer, Detector, Example, View, symptom
from dflash_watch.detectors.examples import example, frames, process
from dflash_watch.detectors.stuck import is_silent, stuck_threads
from dflash_watch.frame import ProcessSample, StackFrame
from dflash_watch.model import Severity, Source

CLIENTS = {
    "ssh": "another machine", "docker": "a container", "podman": "a container",
    "kubectl": "a cluster", "srun": "a cluster node", "sbatch": "a cluster node",
    "salloc": "a cluster node", "pct": "a container", "lxc-attach": "a container",
    "nsenter": "another namespace", "tmux: client": "a terminal session", "screen": "a session",
    "mosh-client": "another machine", "ray": "a cluster", "sky": "a cluster",
}  # fmt: skip
"""Programs whose work happens somewhere else, and where."""
VIEWERS = frozenset({"tail", "less", "more", "watch", "tee", "cat", "sleep", "grep", "journalctl"})
SHELLS = frozenset({"sh", "bash", "zsh", "dash", "fish", "ksh", "timeout", "nohup", "script"})
IDLE_WORKERS = re.compile(
    r"(?:^|/)ray/(?:_private/)?work(?:er|ers/default_worker)\.py$|(?:^|/)celery/(?:worker|concurrency)/"
    r"|ipykernel/kernelapp\.py$|(?:^|/)distributed/(?:nanny|worker)\.py$|(?:^|/)rq/worker\.py$"
)
IDLE_NAMES = re.compile(
    r"^(?:main_loop|run_task_loop|_get_next_task\w*|start|asynloop|work|dequeue)$"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Limits."""

    looks_s: float = 3.0
    """A tree that has just been started may still bring its run."""


def detect(view: View, params: Params) -> Iterator[Answer]:
    """By commands, else by the stack of the main thread."""
    window = view.window
    if window.is_ours or view.progress.first_step_t is not None:
        return
    samples = [one.sample for one in window.tracks.processes.values()]
    seen_s = window.now_t - (window.first_t or window.now_t)
    where = elsewhere(samples) if seen_s >= params.looks_s or not view.takes_stacks else None
    since_t = window.first_t or view.now_t
    if where is not None:
        yield symptom("run", Severity.WARNING, since_t, where, Source.PROCESS)
        return
    if not is_silent(view):
        return
    for one in stuck_threads(view):
        if _waits_for_orders(one.frames):
            text = f"{one.name} waits for work that nobody gives it: {one.leaf} {one.how}"
            yield symptom("run", Severity.WARNING, since_t, text, Source.STACKS)
            return


def elsewhere(samples: list[ProcessSample]) -> str | None:
    """Where the work is, when the commands of the tree say that it is not here."""
    if not samples or any(one.is_python for one in samples):
        return None
    names = {one.comm: one for one in samples}
    for name, where in CLIENTS.items():
        if name in names:
            one = names[name]
            return f"process {one.pid} ({one.cmd[:80]}) is a client: the run is in {where}"
    if set(names) <= VIEWERS | SHELLS and set(names) & VIEWERS:
        one = next(one for one in samples if one.comm in VIEWERS)
        return f"process {one.pid} ({one.cmd[:80]}) only waits or shows: the run is elsewhere"
    return None


def _waits_for_orders(frames_: tuple[StackFrame, ...]) -> bool:
    """Does the loop of an idle worker stand near the leaf, with no work below it?"""
    return any(
        IDLE_WORKERS.search(one.file) and IDLE_NAMES.match(one.name.rpartition(".")[2])
        for one in frames_[:3]
    )


def firing() -> Example:
    """Somebody named the ssh client."""
    client = frames(
        6, processes=lambda i: (process(i, comm="ssh", cmd="ssh gpu-box", is_python=False),)
    )
    return example(client, subject="run")


def clear() -> Example:
    """A shell that started a Python."""
    both = frames(
        6,
        processes=lambda i: (
            process(i, comm="bash", cmd="bash run.sh", is_python=False),
            process(i, pid=11, ppid=10),
        ),
    )
    return example(both)


DETECTOR = Detector(detect=detect, params=Params(), firing=firing, clear=clear)
