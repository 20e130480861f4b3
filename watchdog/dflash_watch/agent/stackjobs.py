"""Stack samples in progress: each in a child of its own, so that frames keep flowing."""

from __future__ import annotations

import time
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from dflash_watch.agent import stacks
from dflash_watch.agent.child import Child
from dflash_watch.agent.probes.threads import ThreadReader

DEADLINE_S = stacks.TOOL_S * stacks.TRIES + 3.0
MAX_JOBS = 8
Done = Tuple[Dict[str, Any], Dict[str, Any]]


class Job(NamedTuple):
    """One request under way."""

    number: Any
    pid: int
    label: str
    child: Child


class StackJobs:
    """Starts samples, hands over those that are ready, gives up on those that are not."""

    def __init__(self, root: str = "/proc") -> None:
        self._root = root
        self._jobs: List[Job] = []

    def start(self, number: Any, pid: int, label: str, tool: Optional[str]) -> Optional[str]:
        """Begin a sample; says why not, None when it runs.

        Args:
            number: the request's id, handed back in the reply.
            pid: the process.
            label: the watcher's name of the sample.
            tool: path of py-spy, or None.
        """
        if len(self._jobs) >= MAX_JOBS:
            return f"stacks: {len(self._jobs)} samples are under way already"
        if any(job.pid == pid for job in self._jobs):
            return f"stacks: a sample of {pid} is under way already"
        root = self._root
        child = Child(
            f"stacks of {pid}",
            lambda _request: stacks.take_stacks(root, pid, label, tool),
            DEADLINE_S,
        )
        if not child.ask({}, time.monotonic()):
            problem = child.gap(time.monotonic()) or {"reason": "cannot be started"}
            return "stacks: {}".format(problem["reason"])
        self._jobs.append(Job(number, pid, label, child))
        return None

    def descriptors(self) -> List[int]:
        """To wait on: readable when an answer is there."""
        return [
            job.child.answer_descriptor
            for job in self._jobs
            if job.child.answer_descriptor is not None
        ]

    def next_deadline_s(self) -> float:
        """Look again within so many seconds."""
        return 0.5 if self._jobs else 3600.0

    def collect(self, now_s: float) -> List[Done]:
        """`stacks` records with their replies, of the samples that are ready or given up."""
        done: List[Done] = []
        for job in list(self._jobs):
            record = job.child.collect(now_s, 0.0)
            if record is None:
                record = self._given_up(job, now_s)
            if record is None:
                continue
            self._jobs.remove(job)
            job.child.close()
            error = record.get("error")
            reply: Dict[str, Any] = {"type": "reply", "id": job.number, "ok": error is None}
            if error is not None:
                reply["error"] = error
            done.append((record if "type" in record else self._failed(job, str(error)), reply))
        return done

    def close(self) -> None:
        """End what is under way."""
        for job in self._jobs:
            job.child.close()
        self._jobs = []

    def _given_up(self, job: Job, now_s: float) -> Optional[Dict[str, Any]]:
        problem = job.child.gap(now_s)
        return None if problem is None else self._failed(job, problem["reason"])

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
        record.update(stacks.kernel_view(rows), error=error)
        return record
