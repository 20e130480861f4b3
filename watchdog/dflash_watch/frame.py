"""What arrives from the watched side: the records that are the engine's only input.

The agent sends one JSON object a record, discriminated by `type`; a capture file is the same
objects, one a line. Anything absent is None and stands in `gaps` with its reason: never zero, never
healthy.
Moments (`t`) are wall-clock seconds of the watched host; ages and durations are measured there.
Unknown keys are ignored, so an older watcher reads a newer agent. See docs/frames.md.
"""

from __future__ import annotations

from typing import Any

import msgspec

from dflash_watch.errors import CaptureError
from dflash_watch.model import RunOptions
from dflash_watch.samples import (
    AgentCost,
    BeatPage,
    BeatWorker,
    CodeFile,
    CodeSample,
    Disk,
    Gap,
    GpuProcess,
    GpuSample,
    HostSample,
    LogSample,
    Part,
    ProcessSample,
    RunSample,
    ThreadSample,
    Ticker,
)

__all__ = [
    "PROTOCOL",
    "PROTOCOL_MIN",
    "AgentCost",
    "BeatPage",
    "BeatWorker",
    "CaptureHeader",
    "CodeFile",
    "CodeSample",
    "ContainerSample",
    "Disk",
    "Frame",
    "Gap",
    "GpuProcess",
    "GpuSample",
    "Hello",
    "HostFrame",
    "HostSample",
    "KernelLine",
    "LinkChange",
    "LogSample",
    "Part",
    "ProcessSample",
    "Record",
    "RunSample",
    "Rung",
    "StackFrame",
    "StackSample",
    "ThreadSample",
    "ThreadStack",
    "Tick",
    "Ticker",
    "kind_not_known",
    "parse_record",
    "render_record",
]

PROTOCOL, PROTOCOL_MIN = 1, 1
"""Highest and lowest number spoken here; docs/frames.md, "Versions"."""


class Hello(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="hello"):
    """First record from the inside: proves where the agent runs."""

    protocol: int
    """Highest that it speaks."""
    protocol_min: int = 1
    agent_version: str
    code_sha256: str | None = None
    """Of the code that runs there, hex, counted by what received it."""
    python: str
    hostname: str
    boot_id: str | None = None
    pid_namespace: int | None = None
    agent_pid: int
    agent_start_ticks: int | None = None
    uid: int
    ticks_per_s: int = 100
    machine: str = "x86_64"
    tools: dict[str, str | None] = msgspec.field(default_factory=dict)
    """`py-spy` -> path, or None."""


class Frame(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="frame"):
    """Everything seen in one look."""

    seq: int
    """Counts up by one within one agent; a frame is never taken twice."""
    t: float
    """Wall clock of the watched host."""
    boot_s: float
    """CLOCK_BOOTTIME there: differences between frames are durations."""
    run: RunSample
    processes: tuple[ProcessSample, ...] | None = None
    threads: dict[str, tuple[ThreadSample, ...]] | None = None
    """pid (as text) -> its threads; absent in frames where they were not due."""
    threads_left_out: dict[str, int] | None = None
    """pid (as text) -> how many of its threads, the newest ones, `threads` leaves out."""
    logs: tuple[LogSample, ...] | None = None
    events: tuple[dict[str, Any], ...] | None = None
    """New lines of events.jsonl, already parsed; the torn last line waits."""
    beats: BeatPage | None = None
    gpus: tuple[GpuSample, ...] | None = None
    gpu_driver: str | None = None
    host: HostSample | None = None
    code: CodeSample | None = None
    """Only in frames that bring a new check."""
    kernel: tuple[str, ...] | None = None
    """New kernel lines that matter (oom-kill, Xid)."""
    gaps: tuple[Gap, ...] = ()
    cost: AgentCost | None = None


class ContainerSample(Part, frozen=True, kw_only=True):
    """A container as its host sees it: cgroups, version 1 or 2."""

    name: str = "container"
    """For people: `container 200`."""
    cgroup: str | None = None
    frozen: bool | None = None
    """By its freezer, or one above."""
    lock: str | None = None
    """Proxmox, while it is frozen: `backup`, `snapshot`, ..."""
    memory_bytes: int | None = None
    memory_limit_bytes: int | None = None
    """The lowest one above it; `memory_bytes` is what counts against that."""
    memory_high_bytes: int | None = None
    oom_kills: int | None = None
    throttled_s: float | None = None
    """For how long its CPU limit has held it back so far; compare two samples."""
    tasks: int | None = None
    """Processes and threads inside."""
    tasks_limit: int | None = None
    cpu_stall_ratio: float | None = None
    memory_stall_ratio: float | None = None
    io_stall_ratio: float | None = None
    """Pressure: share of the last ten seconds in which some process waited for it."""


class KernelLine(Part, frozen=True, kw_only=True):
    """A line of the host's kernel log, and whom it is about."""

    text: str
    about: str = "unknown"
    """`container`, `other` (a process or container beside it), `machine` (nobody is named),
    `unknown`."""
    pid: int | None = None
    """Of the container's process that it names, as counted inside."""


class HostFrame(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="host-frame"):
    """One look of the second agent, on the host of the run's container.

    Sent when there is news, else every five seconds; without `container` there is a gap
    `container-host` that says why.
    """

    seq: int
    t: float
    boot_s: float
    """CLOCK_BOOTTIME, the same clock as in frames of the container."""
    hostname: str | None = None
    container: ContainerSample | None = None
    kernel: tuple[KernelLine, ...] | None = None
    pids: dict[str, int] | None = None
    """Host's process number (as text) -> number inside; only when changed."""
    gpus: tuple[GpuSample, ...] | None = None
    """Only while the container's own view of them fails."""
    gpu_driver: str | None = None
    gaps: tuple[Gap, ...] = ()
    cost: AgentCost | None = None


class StackFrame(msgspec.Struct, frozen=True, array_like=True):
    """One frame of one thread."""

    name: str
    file: str
    line: int


class ThreadStack(Part, frozen=True, kw_only=True):
    """One thread of a stack sample, innermost frame first."""

    tid: int | None
    name: str | None = None
    frames: tuple[StackFrame, ...] = ()
    active: bool | None = None
    """The tool's own opinion: a hint only."""
    owns_gil: bool | None = None
    waits_gil: bool | None = None
    """The tool, or a frame of the interpreter, says that it waits for the interpreter lock."""
    in_gc: bool | None = None
    """Collecting garbage, as the tool says."""
    state: str | None = None
    """From `/proc`, at the sample."""
    cpu_ticks: int | None = None
    wchan: str | None = None
    syscall: str | None = None
    call: str | None = None
    """Name of that system call, on machines where the agent knows it."""
    call_on: str | None = None
    """What the call waits on: `fd 7, pipe:[123]`, the address of a futex."""
    kernel_stack: tuple[str, ...] = ()
    """Kernel functions, innermost first; only root may read them."""


class Rung(Part, frozen=True, kw_only=True):
    """One way to a stack sample, and what became of it."""

    tool: str
    how: str | None = None
    """Where the tool is from: its path, or pushed by the watcher."""
    outcome: str
    """`taken`, or why it was passed over."""


class StackSample(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="stacks"):
    """All threads of one process at one moment, or why not."""

    t: float
    pid: int
    label: str
    tool: str
    """`py-spy`, `pystack`, `faulthandler`, `gdb`, `kernel` (what the kernel says only)."""
    mode: str = "non-blocking"
    duration_s: float = 0.0
    threads: tuple[ThreadStack, ...] = ()
    raw: str = ""
    """Text as the tool printed it, or rendered from its JSON."""
    error: str | None = None
    note: str | None = None
    """Why this tool and not a better one."""
    rank: int | None = None
    """Where a pasted text says so."""
    command: str | None = None
    """Command line of the process, as the tool printed it."""
    ladder: tuple[Rung, ...] = ()
    """The ways that were tried, in order; the last one was taken."""
    did: tuple[str, ...] = ()
    """What was done to the process beyond reading: a signal sent, threads stopped."""


class LinkChange(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="link"):
    """The way to the run changed; written by the watcher's own side, on its clock."""

    t: float
    state: str
    """`connecting`, `up`, `lost`, `closed`."""
    step: str | None = None
    reason: str | None = None
    retry_in_s: float | None = None


class Tick(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="tick"):
    """Time passed and nothing came; the watcher's own clock."""

    t: float


class CaptureHeader(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="capture"):
    """First line of a recording."""

    schema: int = 1
    t: float = 0.0
    options: RunOptions = RunOptions()
    version: str = ""


Record = Hello | Frame | HostFrame | StackSample | LinkChange | Tick
_DECODER: msgspec.json.Decoder[Record | CaptureHeader] = msgspec.json.Decoder(
    Hello | Frame | HostFrame | StackSample | LinkChange | Tick | CaptureHeader
)


class _Kind(msgspec.Struct, frozen=True):
    type: str


_KINDS = frozenset({"hello", "frame", "host-frame", "stacks", "link", "tick", "capture", "reply"})


def parse_record(line: bytes | str) -> Record | CaptureHeader:
    """One record from its JSON.

    Raises:
        CaptureError: the line is not a record; says where and why.
    """
    try:
        return _DECODER.decode(line)
    except (msgspec.DecodeError, RecursionError) as error:
        raise CaptureError(f"not a record: {error}", hint="was the file cut?") from error


def kind_not_known(line: bytes | str) -> str | None:
    """The `type` of a record that only a newer version knows; None of anything else."""
    try:
        kind = msgspec.json.decode(line, type=_Kind).type
    except (msgspec.DecodeError, RecursionError):
        return None
    return None if kind in _KINDS else kind


def render_record(record: Record | CaptureHeader) -> bytes:
    """The JSON of a record, without the line end."""
    return msgspec.json.encode(record)
