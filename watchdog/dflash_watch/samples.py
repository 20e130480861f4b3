"""What one look consists of: the parts of a frame (frame.py).

Anything absent is None and stands in `gaps` with its reason: never zero, never healthy.
"""

from __future__ import annotations

from typing import Any

import msgspec


class Part(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of everything inside a frame."""


class Gap(Part, frozen=True, kw_only=True):
    """A source that could not be read, and why: a fact, not an absence."""

    source: str
    """`process`, `threads`, `log`, `gpu`, `events`, `beats`, `host`, `kernel`, `stacks`, `run`,
    `container-host`."""
    reason: str
    since_s: float | None = None
    """For how long it has not answered."""
    cause: str | None = None
    """The reason as a word, where next steps differ by it. Of `gpu`: `no-library`, `not-loaded`,
    `no-permission`, `lost`, `mismatch`, `unknown-error`, `no-answer`."""


class ProcessSample(Part, frozen=True, kw_only=True):
    """One process of the run's tree, read from `/proc`."""

    pid: int
    ppid: int
    start_ticks: int
    age_s: float | None
    """CLOCK_BOOTTIME minus start ticks; never from `/proc/uptime`."""
    state: str
    """One letter as in `/proc/PID/stat`: R S D T t Z X."""
    comm: str
    cmd: str
    """Command line with secrets masked, at most 400 characters."""
    is_python: bool = False
    cpu_ticks: int | None = None
    """User plus system, over all threads, dead ones included; compare two samples only."""
    wchan: str | None = None
    syscall: str | None = None
    voluntary_switches: int | None = None
    involuntary_switches: int | None = None
    read_bytes: int | None = None
    write_bytes: int | None = None
    rchar: int | None = None
    wchar: int | None = None
    syscr: int | None = None
    syscw: int | None = None
    rss_bytes: int | None = None
    num_threads: int | None = None
    num_fds: int | None = None
    fd_limit: int | None = None
    """Soft limit of open descriptors."""
    tracer_pid: int = 0
    anon_bytes: int | None = None
    """Of `rss_bytes` what is the process's own: without files that it has mapped."""
    rank: int | None = None
    """Global rank, where a launcher put one into its environment."""
    exit_code: int | None = None
    """Of a zombie, where readable."""


class ThreadSample(msgspec.Struct, frozen=True, array_like=True):
    """One thread; an array on the wire since there are many."""

    tid: int
    name: str
    state: str
    cpu_ticks: int
    voluntary_switches: int | None = None
    involuntary_switches: int | None = None
    wchan: str | None = None
    syscall: str | None = None
    """Number, or `running`."""


class LogSample(Part, frozen=True, kw_only=True):
    """One log as the process really writes it."""

    path: str
    """Where descriptor points now; ` (deleted)` removed."""
    via: str
    """`fd 1`, `fd 7`, `pipe -> tee(4123)`, `tmux %3`, `option`."""
    watched_path: str | None = None
    """The path that was asked for or that the manifest names."""
    path_state: str = "same"
    """Is it what the process writes: `same`, `moved`, `missing`, `other-file`, `deleted`."""
    inode: int | None = None
    size_bytes: int | None = None
    mtime_age_s: float | None = None
    pos_bytes: int | None = None
    append: bool | None = None
    deleted: bool = False
    truncated: bool = False
    """Shrunk, or starts with NULs: copied and truncated since the last frame."""
    offset: int | None = None
    """Of `text`."""
    text: str = ""
    """New bytes since the last frame, decoded with replacement; first frame: the last 64 KiB."""
    text_bytes: int | None = None
    """Bytes of the file that became `text`; what is not UTF-8 is longer decoded."""
    ended: bool = False
    """Nothing more will come, as of a log that somebody pasted: what is cut is told as it is."""
    skipped_bytes: int = 0
    """Left out of `text` because more came than a frame carries."""
    newlines: int = 0
    carriage_returns: int = 0
    unbuffered: bool | None = None
    """PYTHONUNBUFFERED or -u at start; None for other files than standard streams, or unread."""
    is_tty: bool = False


class BeatWorker(Part, frozen=True, kw_only=True):
    """One worker slot of the beat page."""

    name: str
    role: str
    device: str | None = None
    tid: int | None = None
    phase: str | None = None
    step: int | None = None
    items: int | None = None
    queue_depth: int | None = None
    queue_capacity: int | None = None
    progress_age_s: float | None = None
    """Since the last *progress*; None before the first."""
    wait: str = "none"
    """`none`, `queue-get`, `queue-put`, `peer`, `device`, `lock`, `io`."""
    wait_age_s: float | None = None
    waits_for: str | None = None
    """Name of the worker it waits for: the peer, the owner of the lock."""
    wait_object: str | None = None
    """Name of the queue or lock."""
    state: str = "running"
    """`running`, `ended`, `failed`."""


class Ticker(Part, frozen=True, kw_only=True):
    """A thread that only proves that the interpreter switches threads."""

    beats: int
    age_s: float
    late_s: float
    """How late it was woken last: the contention figure."""
    max_late_s: float
    run_delay_s: float | None = None
    """How long its thread has waited for a processor since it began: that much is the machine's."""


class BeatPage(Part, frozen=True, kw_only=True):
    """The beat page, read from shared memory."""

    workers: tuple[BeatWorker, ...] = ()
    ticker: Ticker | None = None
    events_dropped: int = 0
    write_errors: int = 0
    last_error: str | None = None
    foreign: bool = False
    """Left over from another process: identity does not match the run."""


class GpuProcess(Part, frozen=True, kw_only=True):
    """A process that holds memory on a GPU."""

    pid: int
    memory_bytes: int | None = None
    pid_space: str = "unknown"
    """`container`, `host`, `unknown`: in which PID namespace `pid` counts."""


class GpuSample(Part, frozen=True, kw_only=True):
    """One GPU. A field that is None is named in `errors` with what the driver said."""

    index: int
    uuid: str | None = None
    name: str | None = None
    state: str = "ok"
    """`ok`, `lost` (fell off the bus), `failed` (refused, unknown error)."""
    errors: dict[str, str] = msgspec.field(default_factory=dict)
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    utilization_ratio: float | None = None
    """Point sample: share of the last sixth to one second in which any kernel ran."""
    utilization_history: tuple[float, ...] = ()
    """Driver's own 5 Hz samples since the last read, ratios."""
    power_watts: float | None = None
    power_history_watts: tuple[float, ...] = ()
    """Driver's own 50 Hz samples since the last read, thinned to at most ten."""
    power_limit_watts: float | None = None
    temperature_celsius: float | None = None
    sm_clock_mhz: int | None = None
    clock_reasons: int | None = None
    sm_ratio: float | None = None
    tensor_ratio: float | None = None
    dram_ratio: float | None = None
    energy_joules: float | None = None
    ecc_uncorrected: int | None = None
    """Since the driver was loaded."""
    nvlinks_active: int | None = None
    """Links that are up; None for a card without any."""
    pci: str | None = None
    """Address on the bus, as kernel lines name the card."""
    processes: tuple[GpuProcess, ...] | None = None
    mig: bool = False
    """Cut into instances: the driver then gives no utilisation of the whole card."""
    xids: tuple[int, ...] = ()
    """Numbers that the driver's events told since the last look."""


class Disk(Part, frozen=True, kw_only=True):
    """Free room where the run writes."""

    path: str
    what: str
    """`run-dir`, `log`, `shm`, `tmp`."""
    free_bytes: int
    total_bytes: int
    free_inodes: int | None = None


class HostSample(Part, frozen=True, kw_only=True):
    """The machine or container around the run."""

    hostname: str | None = None
    cpus: int | None = None
    load1: float | None = None
    cpu_busy_ratio: float | None = None
    uptime_s: float | None = None
    """As `/proc/uptime` says: what `ps` there believes. In LXC far from CLOCK_BOOTTIME."""
    memory_total_bytes: int | None = None
    memory_available_bytes: int | None = None
    cgroup_memory_bytes: int | None = None
    cgroup_memory_limit_bytes: int | None = None
    oom_kills: int | None = None
    """Of the run's own cgroup."""
    machine_oom_kills: int | None = None
    """Of the whole machine, other containers included."""
    throttled_s: float | None = None
    disks: tuple[Disk, ...] = ()


class CodeFile(Part, frozen=True, kw_only=True):
    """A source file that is not what the run loaded."""

    path: str
    change: str
    """`differs`, `removed` (by hash), `newer` (written after the process began)."""
    age_s: float | None = None
    """Since it was last written, when it was checked."""


class CodeSample(Part, frozen=True, kw_only=True):
    """Source files on disk against what was loaded; once a minute."""

    how: str
    """`hashes` (run.json tells them) or `times` (of files beside the script)."""
    num_files: int
    num_changed: int = 0
    changed: tuple[CodeFile, ...] = ()
    """At most twenty."""


class RunSample(Part, frozen=True, kw_only=True):
    """Which run is looked at, and how it was found."""

    state: str
    """`found`, `none` (nothing matches), `gone` (was there, its processes are not)."""
    how: str
    """`run-dir`, `pid`, `match`, `log`, `tmux`, `newest`."""
    name: str | None = None
    run_dir: str | None = None
    root_pid: int | None = None
    root_start_ticks: int | None = None
    note: str | None = None
    """What was looked for, what else matched; why `none`."""
    manifest: dict[str, Any] | None = None
    """run.json; whole in the first frame and after a change, else absent."""
    gone_s: float | None = None
    """Since when the root process is not there."""


class AgentCost(Part, frozen=True, kw_only=True):
    """What the agent itself costs, so that it can be held against it."""

    cpu_ticks: int
    pss_bytes: int | None = None
    children: int = 0
    frame_s: float = 0.0
    frames_left_out: int = 0
    """Looks not taken since the agent started because the reader was slow; nothing else is lost."""
