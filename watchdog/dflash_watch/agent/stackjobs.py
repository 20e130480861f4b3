"""Stack samples in progress: each in a child of its own, so that frames keep flowing.

One at a time: a round over many processes is no burst of samplers on the run's machine.
"""

from __future__ import annotations

import time
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from dflash_watch.agent.child import Child
from dflash_watch.agent.means import BUDGET_S, NEEDS_TOOL, TOOL_S, Means
from dflash_watch.agent.probes.threads import ThreadReader

DEADLINE_S = BUDGET_S + 2 * TOOL_S
MAX_JOBS = 64
"""Requests waiting or under way; more are refused."""
LONGEST_WAIT_S = 25.0
"""A request that waited so long is given up: its watcher has done so too."""
Done = Tuple[Optional[Dict[str, Any]], Dict[str, Any]]
"""A record, if there is one, and the reply."""


class Job(NamedTuple):
    """One request, waiting or under way."""

    number: Any
    pid: int
    label: str
    child: Child
    asked_s: float


class StackJobs:
    """Starts samples one after the other, hands over those that are ready, gives up on the rest."""

    def __init__(self, root: str = "/proc") -> None:
        self._root = root
        self._waiting: List[Job] = []
        self._running: Optional[Job] = None

    def start(self, number: Any, pid: int, label: str, means: Means) -> Optional[str]:
        """Take a request; says why not, None when it waits or runs.

        Args:
            number: the request's id, handed back in the reply.
            pid: the process.
            label: the watcher's name of the sample.
            means: what the sample may be taken with.
        """
        known = [*self._waiting, *([self._running] if self._running else [])]
        if len(known) >= MAX_JOBS:
            return f"stacks: {len(known)} samples are under way already"
        if any(job.pid == pid for job in known):
            return f"stacks: a sample of {pid} is under way already"
        root = self._root

        def serve(_request: Dict[str, Any]) -> Dict[str, Any]:
            # Loaded in the child only: most agents live without ever taking a sample.
            from dflash_watch.agent.stacks import take_stacks

            return take_stacks(root, pid, label, means)

        child = Child(f"stacks of {pid}", serve, DEADLINE_S)
        self._waiting.append(Job(number, pid, label, child, time.monotonic()))
        return self._begin_next()

    def _begin_next(self) -> Optional[str]:
        """Begin the oldest request, if none is under way; says why that cannot be."""
        if self._running is not None or not self._waiting:
            return None
        job = self._waiting.pop(0)
        now_s = time.monotonic()
        if not job.child.ask({}, now_s):
            problem = job.child.gap(now_s) or {"reason": "cannot be started"}
            return "stacks: {}".format(problem["reason"])
        self._running = job
        return None

    def descriptors(self) -> List[int]:
        """To wait on: readable when an answer is there."""
        descriptor = self._running.child.answer_descriptor if self._running else None
        return [] if descriptor is None else [descriptor]

    def next_deadline_s(self) -> float:
        """Look again within so many seconds."""
        return 0.5 if self._running else 3600.0

    def collect(self, now_s: float) -> List[Done]:
        """`stacks` records with their replies, of the samples that are ready or given up."""
        done = self._collect_running(now_s)
        for job in [job for job in self._waiting if now_s - job.asked_s > LONGEST_WAIT_S]:
            self._waiting.remove(job)
            reason = f"not taken: samples before it took {LONGEST_WAIT_S:.0f} s"
            done.append(_answer(job, self._failed(job, reason)))
        while self._running is None and self._waiting:
            job = self._waiting[0]
            problem = self._begin_next()
            if problem is not None:
                done.append(_answer(job, self._failed(job, problem)))
        return done

    def _collect_running(self, now_s: float) -> List[Done]:
        job = self._running
        record = job.child.collect(now_s, 0.0) if job else None
        if job is None or (record is None and job.child.gap(now_s) is None):
            return []
        if record is None:
            record = self._failed(job, str((job.child.gap(now_s) or {})["reason"]))
        self._running = None
        job.child.close()
        if record.get("needs_tool"):
            reply = {"type": "reply", "id": job.number, "ok": False, "error": NEEDS_TOOL}
            return [(None, reply)]
        if "type" not in record:
            record = self._failed(job, str(record.get("error")))
        return [_answer(job, record)]

    def close(self) -> None:
        """End what is under way."""
        if self._running is not None:
            self._running.child.close()
        self._waiting, self._running = [], None

    def _failed(self, job: Job, error: str) -> Dict[str, Any]:
        """The kernel's view in place of the stacks, and why."""
        rows = (
            ThreadReader(self._root).read([job.pid], with_switches=False)[0].get(str(job.pid), [])
        )
        record: Dict[str, Any] = {
            "type": "stacks",
            "t": round(time.time(), 3),
            "pid": job.pid,
            "label": job.label,
        }
        from dflash_watch.agent.kernelview import KernelView, kernel_view, machine

        view = KernelView(self._root, job.pid, machine())
        record.update(kernel_view(view, rows), error=error)
        return record


def _answer(job: Job, record: Dict[str, Any]) -> Done:
    error = record.get("error")
    reply: Dict[str, Any] = {"type": "reply", "id": job.number, "ok": error is None}
    if error is not None:
        reply["error"] = error
    return record, reply
