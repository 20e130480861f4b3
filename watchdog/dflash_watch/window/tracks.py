"""What became of each process and thread: tick differences, states, who vanished and when."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from dflash_watch.frame import Frame, ProcessSample, ThreadSample

KEPT = 24
"""Looks kept for each process and thread: enough for rates over some twenty seconds."""
KEPT_GONE = 200
"""Vanished threads remembered."""
SLEEP_CALLS = frozenset({"hrtimer_nanosleep", "do_nanosleep", "common_nsleep"})
"""Kernel functions of sleep alone: waits for locks, queues and descriptors stand elsewhere."""
STOPPED, DISK, ZOMBIE = frozenset("Tt"), "D", frozenset("ZX")


@dataclass(slots=True)
class Track:
    """One process or thread over the kept looks."""

    name: str
    first_t: float
    last_t: float
    state: str
    state_since_t: float
    state_looks: int = 1
    """Looks in a row with this state."""
    moved_t: float | None = None
    """When its CPU ticks last differed from the look before."""
    gone_t: float | None = None
    ticks: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=KEPT))
    """(boot time, CPU ticks)."""
    wchan: str | None = None
    """Of a thread: the kernel function that it was last seen in."""

    def see(self, t: float, boot_s: float, state: str, cpu_ticks: int | None) -> None:
        """Take one more look."""
        self.last_t, self.gone_t = t, None
        if state != self.state:
            self.state, self.state_since_t, self.state_looks = state, t, 1
        else:
            self.state_looks += 1
        if cpu_ticks is None:
            return
        if self.ticks and cpu_ticks > self.ticks[-1][1]:
            self.moved_t = t
        self.ticks.append((boot_s, cpu_ticks))

    def used_ticks(self, since_boot_s: float) -> tuple[int, float] | None:
        """CPU ticks and the seconds they took since then; None with fewer than two looks."""
        if len(self.ticks) < 2:
            return None
        first = self.ticks[-2]
        for look in reversed(self.ticks):
            if look[0] < since_boot_s:
                break
            first = look
        if first is self.ticks[-1]:
            first = self.ticks[-2]
        return self.ticks[-1][1] - first[1], self.ticks[-1][0] - first[0]

    def lived_s(self) -> float:
        """Seconds from the first look to the last."""
        return self.last_t - self.first_t


@dataclass(slots=True)
class ProcessTrack:
    """One process: its track, its newest sample and what it read and wrote."""

    track: Track
    sample: ProcessSample
    io: deque[tuple[float, int, int]] = field(default_factory=lambda: deque(maxlen=KEPT))
    """(boot time, bytes through read calls, bytes through write calls)."""
    rss: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=KEPT))
    """(boot time, resident bytes)."""
    asleep_since_t: float | None = None
    """Since when the main thread has been in one and the same sleep call; None when it is not."""

    def see(self, sample: ProcessSample, t: float) -> None:
        """Take one more look at it."""
        woke = sample.voluntary_switches != self.sample.voluntary_switches
        if not _sleeps(sample):
            self.asleep_since_t = None
        elif self.asleep_since_t is None or woke:
            self.asleep_since_t = t
        self.sample = sample

    @staticmethod
    def rate(
        looks: Sequence[tuple[float, ...]], since_boot_s: float, columns: tuple[int, ...]
    ) -> float | None:
        """Growth a second of some columns since then; None while two looks are missing."""
        kept = [look for look in looks if look[0] >= since_boot_s] or list(looks)[-2:]
        if len(kept) < 2 or kept[-1][0] <= kept[0][0]:
            return None
        grown = sum(kept[-1][i] - kept[0][i] for i in columns)
        return max(grown, 0.0) / (kept[-1][0] - kept[0][0])


def _sum(rates: list[float | None]) -> float | None:
    known = [rate for rate in rates if rate is not None]
    return sum(known) if known else None


def how_it_ended(status: int | None) -> tuple[int | None, str]:
    """Exit code and words of a wait status as `/proc/PID/stat` has it; -N is signal N."""
    if status is None:
        return None, "exit code not readable"
    signal = status & 0x7F
    if signal:
        return -signal, f"ended by signal {signal}"
    return status >> 8, f"exit code {status >> 8}"


def _sleeps(sample: ProcessSample) -> bool:
    """The kernel says that the main thread is in a sleep call, and counts its switches."""
    return sample.wchan in SLEEP_CALLS and sample.voluntary_switches is not None


def _moved_bytes(sample: ProcessSample) -> tuple[int, int] | None:
    pairs = ((sample.rchar, sample.wchar), (sample.read_bytes, sample.write_bytes))
    for read, written in pairs:
        if read is not None and written is not None:
            return read, written
    return None


class Tracks:
    """All processes of the run's tree and their threads."""

    def __init__(self) -> None:
        self.processes: dict[tuple[int, int], ProcessTrack] = {}
        self.threads: dict[tuple[int, int], Track] = {}
        """(pid, tid) -> its track, while it is there."""
        self.gone_threads: deque[tuple[int, int, Track]] = deque(maxlen=KEPT_GONE)
        self.gone_processes: deque[ProcessTrack] = deque(maxlen=20)
        self.threads_changed_t: float | None = None
        """When a thread last came or went."""

    def take(self, frame: Frame) -> None:
        """Take one frame; what it does not carry stays as it was."""
        if frame.processes is not None:
            self._take_processes(frame, frame.processes)
        for pid_text, samples in (frame.threads or {}).items():
            if pid_text.isascii() and pid_text.isdigit():
                self._take_threads(frame, int(pid_text[:18]), samples)

    def _take_processes(self, frame: Frame, samples: tuple[ProcessSample, ...]) -> None:
        seen = set()
        for sample in samples:
            key = (sample.pid, sample.start_ticks)
            seen.add(key)
            known = self.processes.get(key)
            if known is None:
                track = Track(sample.comm, frame.t, frame.t, sample.state, frame.t, 0)
                known = self.processes[key] = ProcessTrack(track, sample)
            known.see(sample, frame.t)
            known.track.see(frame.t, frame.boot_s, sample.state, sample.cpu_ticks)
            moved = _moved_bytes(sample)
            if moved is not None:
                known.io.append((frame.boot_s, *moved))
            if sample.rss_bytes is not None:
                known.rss.append((frame.boot_s, sample.rss_bytes))
        for key in [key for key in self.processes if key not in seen]:
            known = self.processes.pop(key)
            known.track.gone_t = frame.t
            self.gone_processes.append(known)
            for thread in [thread for thread in self.threads if thread[0] == key[0]]:
                del self.threads[thread]

    def _take_threads(self, frame: Frame, pid: int, samples: tuple[ThreadSample, ...]) -> None:
        seen = set()
        for sample in samples:
            key = (pid, sample.tid)
            seen.add(key)
            track = self.threads.get(key)
            if track is None:
                track = Track(sample.name, frame.t, frame.t, sample.state, frame.t, 0)
                self.threads[key] = track
                self.threads_changed_t = frame.t
            track.name, track.wchan = sample.name, sample.wchan
            track.see(frame.t, frame.boot_s, sample.state, sample.cpu_ticks)
        # Beyond the last one of a list that was cut nobody has looked: not there, yet not gone.
        is_cut = str(pid) in (frame.threads_left_out or {})
        last = max((tid for _, tid in seen), default=0)
        for key in [key for key in self.threads if key[0] == pid and key not in seen]:
            track = self.threads.pop(key)
            if is_cut and key[1] > last:
                continue
            track.gone_t = frame.t
            self.gone_threads.append((key[0], key[1], track))
            self.threads_changed_t = frame.t

    def pids(self) -> set[int]:
        """Numbers of the run's processes."""
        return {pid for pid, _ in self.processes}

    def process(self, pid: int | None) -> ProcessTrack | None:
        """The process that has this number now."""
        for (known, _), process in self.processes.items():
            if known == pid:
                return process
        return None

    def cpu_ratio(self, since_boot_s: float, ticks_per_s: int) -> float | None:
        """Cores used by the whole tree since then; None while two looks are missing."""
        ratios = []
        for process in self.processes.values():
            used = process.track.used_ticks(since_boot_s)
            if used is not None and used[1] > 0:
                ratios.append(max(used[0], 0) / ticks_per_s / used[1])
        return sum(ratios) if ratios else None

    def io_per_s(self, since_boot_s: float) -> float | None:
        """Bytes a second through read and write calls of the whole tree."""
        return _sum([one.rate(one.io, since_boot_s, (1, 2)) for one in self.processes.values()])

    def read_per_s(self, since_boot_s: float) -> float | None:
        """Bytes a second through read calls of the whole tree."""
        return _sum([one.rate(one.io, since_boot_s, (1,)) for one in self.processes.values()])

    def written_per_s(self, since_boot_s: float) -> float | None:
        """Bytes a second through write calls of the whole tree."""
        return _sum([one.rate(one.io, since_boot_s, (2,)) for one in self.processes.values()])

    def grown_per_s(self, since_boot_s: float) -> float | None:
        """Bytes a second by which resident memory of the tree grew."""
        return _sum([one.rate(one.rss, since_boot_s, (1,)) for one in self.processes.values()])

    def in_state(self, letters: frozenset[str] | str) -> Iterator[ProcessTrack]:
        """Processes that stand in one of these states."""
        return (one for one in self.processes.values() if one.track.state in letters)
