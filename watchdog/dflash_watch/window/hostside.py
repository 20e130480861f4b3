"""What the host of the run's container tells: freezer, kills, kernel lines, numbers, GPUs.

Its records stand beside the frames and fill what those could not see; nothing of it is believed
about the run when it is about somebody else.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable

import msgspec

from dflash_watch.frame import (
    ContainerSample,
    Frame,
    Gap,
    GpuProcess,
    GpuSample,
    HostFrame,
    KernelLine,
)

SOURCE = "container-host"
STALE_S = 20.0
"""Without a word of the host for so long nothing is filled in from it."""
KEPT_LINES = 50
_PID = re.compile(r"[0-9]{1,10}")
_KILL = re.compile(r"[Oo]ut of memory|oom-kill|[Kk]illed process")
_NO_DRIVER_HERE = re.compile(r"no NVIDIA library|driver is not loaded")
"""What the agent says where a container has no GPU, or none that it was given."""


class HostSide:
    """The newest words of the host, and what of them belongs into a frame."""

    def __init__(self) -> None:
        self.newest: HostFrame | None = None
        self.container: ContainerSample | None = None
        self.frozen_boot_s: float | None = None
        """Since when nothing in the container runs, CLOCK_BOOTTIME; until a frame comes of it."""
        self.thawed_boot_s: float | None = None
        """Since when it may run again though no frame has come."""
        self._seen_frozen_s = 0.0
        self.kernel: deque[KernelLine] = deque(maxlen=KEPT_LINES)
        self.gap: Gap | None = None
        self.has_answered = False
        self.gpus_gap: Gap | None = None
        """Why the newest frame's GPUs were read on the host; None when they were not."""
        self._seen: deque[str] = deque(maxlen=4 * KEPT_LINES)
        self._inner: dict[int, int] = {}

    def take(self, record: HostFrame) -> tuple[bool, list[KernelLine]]:
        """Take one look; whether it changes what is known of the run, and its new lines."""
        before = (self._standing(), self.gap)
        self.gap = next((one for one in record.gaps if one.source == SOURCE), None)
        self.newest = record
        if record.container is not None:
            self.has_answered = True
        self.container = record.container
        frozen = record.container is not None and bool(record.container.frozen)
        if frozen:
            self.frozen_boot_s = record.boot_s if self.frozen_boot_s is None else self.frozen_boot_s
            self._seen_frozen_s, self.thawed_boot_s = record.boot_s, None
        elif self.frozen_boot_s is not None and self.thawed_boot_s is None:
            self.thawed_boot_s = record.boot_s
        if record.pids is not None:
            pairs = record.pids.items()
            self._inner = {int(pid): inner for pid, inner in pairs if _PID.fullmatch(pid)}
        fresh = [line for line in record.kernel or () if self._is_new(line.text)]
        self.kernel.extend(fresh)
        return bool(fresh) or before != (self._standing(), self.gap), fresh

    @property
    def reads_kernel(self) -> bool:
        """Are the kernel's lines read on the host?"""
        newest = self.newest
        if newest is None or newest.container is None:
            return False
        return not any(gap.source == "kernel" for gap in newest.gaps)

    def frozen_text(self) -> str:
        """Why nothing comes of the container."""
        one = self.container
        name, lock = (one.name, one.lock) if one is not None else ("the container", None)
        why = f"locked: {lock}" if lock else "backup or snapshot?"
        return f"{name} is frozen ({why}): nothing in it runs until it is thawed"

    def see_life(self, frame: Frame) -> None:
        """A frame proves that the container ran when it was made, after it was seen frozen."""
        if frame.boot_s > self._seen_frozen_s:
            self.frozen_boot_s = self.thawed_boot_s = None

    def merged(self, frame: Frame) -> Frame:
        """The frame with what only the host could see of GPUs and memory."""
        self.gpus_gap = None
        newest = self.newest
        if newest is None or abs(frame.boot_s - newest.boot_s) > STALE_S:
            return frame
        return self._with_gpus(self._with_memory(frame), newest)

    def _with_memory(self, frame: Frame) -> Frame:
        """Use and limit of the container's group, where the container has no view of its own."""
        one, host = self.container, frame.host
        if one is None or host is None or host.cgroup_memory_bytes is not None:
            return frame
        filled = msgspec.structs.replace(
            host, cgroup_memory_bytes=one.memory_bytes,
            cgroup_memory_limit_bytes=one.memory_limit_bytes,
        )  # fmt: skip
        return msgspec.structs.replace(frame, host=filled)

    def _with_gpus(self, frame: Frame, newest: HostFrame) -> Frame:
        gap = next((one for one in frame.gaps if one.source == "gpu"), None)
        if gap is not None and newest.gpus and self._are_ours(newest.gpus, gap):
            self.gpus_gap = gap
            rest = tuple(one for one in frame.gaps if one is not gap)
            return msgspec.structs.replace(
                frame, gpus=newest.gpus, gpu_driver=newest.gpu_driver, gaps=rest
            )
        if frame.gpus and self._inner:
            return msgspec.structs.replace(frame, gpus=tuple(map(self._numbered, frame.gpus)))
        return frame

    def killed(self, pids: Iterable[int]) -> tuple[int, str] | None:
        """The newest kernel line that says that one of these was killed for memory."""
        wanted = set(pids)
        for line in reversed(self.kernel):
            if line.pid in wanted and _KILL.search(line.text):
                return line.pid or 0, line.text
        return None

    def lines(self) -> list[str]:
        """Of the kernel's, those about the container or the whole machine, oldest first."""
        return [line.text for line in self.kernel if line.about in {"container", "machine"}]

    def _standing(self) -> tuple[object, ...]:
        one = self.container
        return () if one is None else (one.frozen, one.lock, one.oom_kills)

    def _is_new(self, text: str) -> bool:
        if text in self._seen:
            return False
        self._seen.append(text)
        return True

    def _are_ours(self, gpus: tuple[GpuSample, ...], gap: Gap) -> bool:
        """Cards of a container without any driver are the run's only if it is seen on one."""
        if not _NO_DRIVER_HERE.search(gap.reason):
            return True
        users = (one for gpu in gpus for one in gpu.processes or ())
        return any(one.pid_space == "container" for one in users)

    def _numbered(self, gpu: GpuSample) -> GpuSample:
        """The card with the numbers that a process has inside, where the driver told the host's."""
        if all(one.pid_space != "unknown" for one in gpu.processes or ()):
            return gpu
        told = tuple(self._placed(one) for one in gpu.processes or ())
        return msgspec.structs.replace(gpu, processes=told)

    def _placed(self, one: GpuProcess) -> GpuProcess:
        inner = self._inner.get(one.pid) if one.pid_space == "unknown" else None
        if inner is None:
            return one
        return msgspec.structs.replace(one, pid=inner, pid_space="container")
