"""The second agent's look: the host of a container, at what that container cannot show itself.

Kernel log, cgroups (freezer, memory, kills, throttling, pressure), process numbers, and on request
the GPUs. A look without news is not sent, except every `BEAT_S`.
"""

from __future__ import annotations

import os
import time
from typing import Any, Callable, Dict, List, Optional

from dflash_watch.agent import proc
from dflash_watch.agent.child import Child
from dflash_watch.agent.container import locate
from dflash_watch.agent.cost import CostMeter
from dflash_watch.agent.kernelwho import KernelWho
from dflash_watch.agent.means import Means
from dflash_watch.agent.memory import READS
from dflash_watch.agent.probes.gpus import GpuSource
from dflash_watch.agent.probes.kernel import KernelReader

BEAT_S = 5.0
COLLECT_WAIT_S = 0.05
LOCK_DEADLINE_S = 4.0
NOT_HERE = "nothing of it runs on this machine: another host, or its processes cannot be seen"
NO_GROUPS = "its cgroups cannot be read on this host"
NEWS = ("frozen", "lock", "oom_kills")


class HostLook:
    """The probes of the agent on the host.

    Args:
        root: `/proc`.
        wanted: `name`, `agent_pid`, `agent_start_ticks`, perhaps `lock_file` (docs/frames.md).
        gpus: the GPU source; asked only after the op `gpus`.
        kernel: the kernel log.
    """

    def __init__(
        self, root: str, wanted: Dict[str, Any], gpus: Optional[GpuSource], kernel: KernelReader
    ) -> None:
        self._root, self._wanted = root, wanted
        self._gpus, self._kernel = gpus, kernel
        self._wants_gpus = False
        self._container = locate(root, wanted)
        self._who = KernelWho(root, self._container) if self._container is not None else None
        self._lock = Child("proxmox configuration", self._read_lock, LOCK_DEADLINE_S)
        self._lock_now: Optional[str] = None
        self._seq = 0
        self._sent_s = float("-inf")
        self._before: Any = None
        self._cost = CostMeter(time.monotonic())
        self.ops: Dict[str, Callable[[Dict[str, Any]], Optional[str]]] = {"gpus": self._want_gpus}

    def frame(self, left_out: int = 0) -> Optional[Dict[str, Any]]:
        """The record of this moment, `frame.HostFrame`; None when there is nothing new."""
        started_s, now_s = time.monotonic(), proc.boot_s()
        gaps: List[Dict[str, Any]] = []
        frame: Dict[str, Any] = {
            "type": "host-frame", "seq": self._seq, "t": round(time.time(), 3),
            "boot_s": round(now_s, 3), "hostname": os.uname().nodename,
        }  # fmt: skip
        container = self._read_container(gaps)
        if container is not None:
            container.update(self._lock_of(container, now_s))
            frame["container"] = container
        kernel = self._read_kernel(gaps, now_s)
        if kernel:
            frame["kernel"] = kernel
        frame.update(self._read_gpus(gaps, now_s))
        frame["gaps"] = gaps
        if not self._is_news(frame, now_s):
            return None
        pids = self._container.news() if self._container is not None else None
        if pids is not None:
            frame["pids"] = pids
        self._seq += 1
        self._sent_s = now_s
        frame["cost"] = self._cost.read(started_s, time.monotonic(), self.children(), left_out)
        return frame

    def begin_gpus(self) -> None:
        """Nothing yet: the container's own view comes first."""

    def children(self) -> List[int]:
        """Processes that are asked for what can block."""
        gpus = self._gpus.child.pid if self._gpus is not None else None
        return [pid for pid in (self._lock.pid, READS.pid, gpus) if pid is not None]

    def stack_means(self) -> Means:
        """None: stacks are taken inside."""
        return Means()

    def close(self) -> None:
        """End the children; let go of descriptors."""
        self._kernel.close()
        self._lock.close()
        READS.close()
        if self._gpus is not None:
            self._gpus.close()

    def _want_gpus(self, request: Dict[str, Any]) -> Optional[str]:
        self._wants_gpus = bool(request.get("on"))
        if not self._wants_gpus and self._gpus is not None:
            self._gpus.close()
        return None

    def _read_container(self, gaps: List[Dict[str, Any]]) -> Optional[Dict[str, Any]]:
        name = str(self._wanted.get("name") or "container")
        if self._container is None:
            gaps.append({"source": "container-host", "reason": NOT_HERE})
            return None
        if not self._container.groups.is_there:
            gaps.append({"source": "container-host", "reason": NO_GROUPS})
            return None
        self._container.refresh()
        return dict(self._container.groups.read(), name=name)

    def _lock_of(self, container: Dict[str, Any], now_s: float) -> Dict[str, Any]:
        """Why it is frozen, where Proxmox notes that."""
        if not container.get("frozen") or not self._wanted.get("lock_file"):
            self._lock_now = None
            return {}
        self._lock.ask({}, now_s)
        answer = self._lock.collect(now_s, COLLECT_WAIT_S)
        if answer is not None:
            self._lock_now = answer.get("lock")
        return {"lock": self._lock_now} if self._lock_now else {}

    def _read_lock(self, _request: Dict[str, Any]) -> Dict[str, Any]:
        """Runs in the child: the configuration lies on a file system of its own, which may hang."""
        text = proc.read_text(str(self._wanted["lock_file"]), 65536) or ""
        for line in text.splitlines():
            if line.startswith("["):  # a snapshot's section
                break
            if line.startswith("lock:"):
                return {"lock": line[5:].strip()[:40]}
        return {}

    def _read_kernel(self, gaps: List[Dict[str, Any]], now_s: float) -> List[Dict[str, Any]]:
        lines, problem = self._kernel.read(now_s)
        if problem is not None:
            gaps.append({"source": "kernel", "reason": problem})
        if not lines or self._who is None:
            return []
        return self._who.mark(lines)

    def _read_gpus(self, gaps: List[Dict[str, Any]], now_s: float) -> Dict[str, Any]:
        if self._gpus is None or not self._wants_gpus:
            return {}
        self._gpus.ask(self._container.living if self._container is not None else [], now_s)
        answer = self._gpus.collect(proc.boot_s(), COLLECT_WAIT_S, gaps)
        for row in answer.get("gpus") or ():
            for process in row.get("processes") or ():
                self._place(process)
        return answer

    def _place(self, process: Dict[str, Any]) -> None:
        """The driver's numbers are the host's here: of the container's processes tell their own."""
        inner = self._container.inner(process["pid"]) if self._container is not None else None
        process["pid_space"] = "host" if inner is None else "container"
        if inner is not None:
            process["pid"] = inner

    def _is_news(self, frame: Dict[str, Any], now_s: float) -> bool:
        container = frame.get("container") or {}
        now = [[container.get(key) for key in NEWS], [gap["reason"] for gap in frame["gaps"]]]
        before, self._before = self._before, now
        told = any(frame.get(key) for key in ("kernel", "gpus"))
        return told or now != before or now_s - self._sent_s >= BEAT_S - 0.1
