"""What was seen around an incident, as plain files: GPUs, processes, host, the end of the logs."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

from dflash_watch.frame import (
    Frame,
    HostFrame,
    HostSample,
    KernelLine,
    ProcessSample,
    Record,
    ThreadSample,
)
from dflash_watch.readers.lines import LineSplitter
from dflash_watch.units import count, data_size, duration, moment, percent

LOG_LINES = 400
GPU_COLUMNS = (
    "t",
    "index",
    "name",
    "state",
    "utilization_ratio",
    "memory_used_bytes",
    "memory_total_bytes",
    "power_watts",
    "temperature_celsius",
    "sm_clock_mhz",
    "sm_ratio",
    "tensor_ratio",
    "dram_ratio",
    "ecc_uncorrected",
    "errors",
)


def gpus_csv(frames: Iterable[Frame | HostFrame]) -> str:
    """One row a GPU and frame; an empty field is a value that was not given."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(GPU_COLUMNS)
    for frame in frames:
        for gpu in frame.gpus or ():
            errors = "; ".join(f"{name}: {said}" for name, said in gpu.errors.items())
            cells = [getattr(gpu, name) for name in GPU_COLUMNS[1:-1]]
            writer.writerow([f"{frame.t:.3f}", *map(_cell, cells), _cell(errors)])
    return out.getvalue()


def _cell(value: object) -> object:
    """A cell that no spreadsheet takes for a formula."""
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@"):
        return f"'{value}"
    return "" if value is None else value


def processes_text(frames: Sequence[Frame], ticks_per_s: int = 100) -> str:
    """The newest process list and thread lists, with CPU since the look before.

    CPU is a difference of ticks over the time between two frames, in shares of one core.
    """
    with_processes = [frame for frame in frames if frame.processes is not None]
    if not with_processes:
        return "no process list was seen\n"
    newest, before = with_processes[-1], with_processes[max(len(with_processes) - 6, 0)]
    ticks = (newest.boot_s - before.boot_s) * ticks_per_s
    earlier = {(p.pid, p.start_ticks): p.cpu_ticks for p in before.processes or ()}
    lines = [f"at {moment(newest.t)}, CPU over {duration(ticks / ticks_per_s)}"]
    lines += [f"run: {newest.run.state} (found by {newest.run.how})"]
    for process in newest.processes or ():
        was = earlier.get((process.pid, process.start_ticks))
        lines += ["", _process(process, _share(was, process.cpu_ticks, ticks))]
    lines += _threads(with_processes, ticks)
    return "\n".join(lines) + "\n"


def host_text(frames: Sequence[Frame], host_frames: Sequence[HostFrame] = ()) -> str:
    """Host figures, kernel lines and gaps, newest first where they have a time.

    Args:
        frames: of the run's agent.
        host_frames: of the second agent, on the host of a container.
    """
    lines: list[str] = []
    host = next((frame.host for frame in reversed(frames) if frame.host is not None), None)
    lines += _host(host) if host is not None else ["no host figures were seen"]
    kernel = [line for frame in frames for line in frame.kernel or ()]
    lines += _container(host_frames)
    kernel += [f"{_about(line)}{line.text}" for one in host_frames for line in one.kernel or ()]
    lines += ["", "kernel lines:", *(kernel or ["  none seen"])]
    looks: list[Frame | HostFrame] = [*frames, *host_frames]
    gaps = {gap.source: (one.t, gap) for one in looks for gap in one.gaps}
    lines += ["", "sources that gave no answer:"]
    lines += [
        f"  {source}: {gap.reason} (at {moment(t)})" for source, (t, gap) in gaps.items()
    ] or ["  none"]
    return "\n".join(lines) + "\n"


def log_tail(frames: Iterable[Frame]) -> str:
    """The newest lines of each log, cleaned of control characters; a bar is its last state."""
    splitters: dict[str, LineSplitter] = {}
    lines: dict[str, list[str]] = {}
    for frame in frames:
        for sample in frame.logs or ():
            if not sample.text:
                continue
            splitter = splitters.setdefault(sample.path, LineSplitter())
            if sample.skipped_bytes:
                splitter.restart(mid_line=True)
            own = lines.setdefault(sample.path, [])
            own += [line.text for line in splitter.feed(sample.text) if line.ended]
            del own[:-LOG_LINES]
    out: list[str] = []
    for path, own in lines.items():
        partial = splitters[path].partial
        out += [f"== {path}", *own, *([partial] if partial else []), ""]
    return "\n".join(out) + "\n" if out else "no log text was seen\n"


def tracebacks_of(frames: Iterable[Frame]) -> list[tuple[str, str]]:
    """Worker and traceback of each `worker-failed` event, oldest first."""
    told = []
    for frame in frames:
        for event in frame.events or ():
            if event.get("kind") == "worker-failed":
                short = f"{event.get('exception')}: {event.get('message')}"
                told.append((str(event.get("worker")), str(event.get("traceback") or short)))
    return told


def host_frames_of(records: Iterable[Record]) -> list[HostFrame]:
    """The looks of the second agent among the records."""
    return [record for record in records if isinstance(record, HostFrame)]


def frames_of(records: Iterable[Record]) -> list[Frame]:
    """The frames among the records."""
    return [record for record in records if isinstance(record, Frame)]


def _process(process: ProcessSample, share: str) -> str:
    parts = [
        f"pid {process.pid} (parent {process.ppid}) state {process.state}",
        f"age {duration(process.age_s)}",
        f"CPU {share}",
        f"memory {data_size(process.rss_bytes)}",
        f"threads {count(process.num_threads)}",
    ]
    if process.wchan:
        parts.append(f"in {process.wchan}")
    if process.tracer_pid:
        parts.append(f"traced by {process.tracer_pid}")
    return f"{', '.join(parts)}\n  {process.cmd or process.comm}"


def _threads(frames: Sequence[Frame], ticks: float) -> list[str]:
    newest = next((frame.threads for frame in reversed(frames) if frame.threads), None)
    first = next((frame.threads for frame in frames[-6:] if frame.threads), None)
    lines: list[str] = []
    for pid, threads in (newest or {}).items():
        earlier = {one.tid: one.cpu_ticks for one in (first or {}).get(pid, ())}
        lines += ["", f"threads of {pid}:"]
        lines += [
            _thread(one, _share(earlier.get(one.tid), one.cpu_ticks, ticks)) for one in threads
        ]
    return lines


def _thread(one: ThreadSample, share: str) -> str:
    where = " ".join(part for part in (one.wchan, one.syscall and f"syscall {one.syscall}") if part)
    return f"  {one.tid:>8} {one.state} {share:>6}  {one.name:<16} {where}".rstrip()


def _share(before: int | None, now: int | None, ticks: float) -> str:
    if before is None or now is None or ticks <= 0:
        return "-"
    return percent(max(now - before, 0) / ticks)


def _about(line: KernelLine) -> str:
    """Whom the host's kernel means."""
    if line.pid is not None:
        return f"(process {line.pid} inside) "
    return "" if line.about == "machine" else f"({line.about}) "


def _container(host_frames: Sequence[HostFrame]) -> list[str]:
    """The container as its host saw it last."""
    newest = next((one for one in reversed(host_frames) if one.container is not None), None)
    if newest is None or newest.container is None:
        return []
    one = newest.container
    frozen = {True: "frozen", False: "not frozen", None: "freezer not known"}[one.frozen]
    pressure = ", ".join(
        f"{what} {percent(ratio)}"
        for what, ratio in (
            ("CPU", one.cpu_stall_ratio), ("memory", one.memory_stall_ratio),
            ("I/O", one.io_stall_ratio),
        )
    )  # fmt: skip
    lock = f", locked: {one.lock}" if one.lock else ""
    return [
        "",
        f"{one.name} as its host {newest.hostname or 'not known'} saw it at {moment(newest.t)}:",
        f"  group {one.cgroup or 'not known'}, {frozen}{lock}",
        f"  memory {data_size(one.memory_bytes)} of {data_size(one.memory_limit_bytes)}",
        f"  oom kills {count(one.oom_kills)}, tasks {count(one.tasks)} of {count(one.tasks_limit)}",
        f"  held back by its CPU limit {duration(one.throttled_s)} in all; waiting: {pressure}",
    ]


def _host(host: HostSample) -> list[str]:
    load = "not known" if host.load1 is None else f"{host.load1:.1f}"
    lines = [
        f"host {host.hostname or 'not known'}, {count(host.cpus)} CPUs, load {load}",
        f"CPU busy {percent(host.cpu_busy_ratio)}",
        (
            f"memory available {data_size(host.memory_available_bytes)}"
            f" of {data_size(host.memory_total_bytes)}"
        ),
        (
            f"cgroup memory {data_size(host.cgroup_memory_bytes)}"
            f" of {data_size(host.cgroup_memory_limit_bytes)}, oom kills {count(host.oom_kills)}"
            f" (whole machine: {count(host.machine_oom_kills)})"
        ),
    ]
    lines += [
        f"{disk.what} {disk.path}: {data_size(disk.free_bytes)} free"
        f" of {data_size(disk.total_bytes)}"
        for disk in host.disks
    ]
    return lines
