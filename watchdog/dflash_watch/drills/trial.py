"""One drill from start to end: run, watcher, fault, answer, clean-up."""

from __future__ import annotations

import contextlib
import json
import math
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dflash_watch.drills import ground, programs
from dflash_watch.drills.catalog import TINY, Drill
from dflash_watch.drills.fake_nvml import FakeNvml
from dflash_watch.errors import WatchError

READY_S, SETTLE_S, KEPT_S, HEALED_S, LOOK_S = 120.0, 8.0, 30.0, 60.0, 0.1
TAUGHT_S, TAUGHT_WITHIN_S = 30.0, 90.0
"""A limit for silence that steps have taught, and how long to wait for it."""
FILL_BYTES = 1 << 16
POWER = "nvmlDeviceGetPowerUsage"
PROGRAMS = (sys.executable, "-P", str(Path(programs.__file__)))
WATCH = (sys.executable, "-m", "dflash_watch.cli")
TRAIN = (sys.executable, "-m", "dflash_train.cli")
Line = dict[str, Any]
State = Literal["caught", "missed", "skipped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What came of a drill."""

    drill: Drill
    state: State
    verdict: str | None = None
    """As it was said: the right one, or the last one."""
    failure: str | None = None
    subject: str | None = None
    seconds: float | None = None
    """From the fault to the answer."""
    samples: int = 0
    """Stack files of the incident."""
    why: str = ""
    """Missed or skipped: what was the matter."""


class MissedError(WatchError):
    """The answer did not come, or was another one."""


def run_drill(
    drill: Drill, folder: Path, environment: Mapping[str, str], stop: threading.Event
) -> Result:
    """Break something, look whether it is named, undo everything.

    Args:
        drill: which.
        folder: empty; holds everything it writes.
        environment: of the run and of the watcher.
        stop: ends it early.

    Raises:
        KeyboardInterrupt: it was asked to stop; everything is undone.
    """
    for need in sorted(drill.needs):
        reason = ground.lacks(need)
        if reason is not None:
            return Result(drill=drill, state="skipped", why=reason)
    with contextlib.ExitStack() as undo:
        trial = Trial(drill, folder, environment, undo, stop)
        try:
            return trial.run()
        except MissedError as error:
            return trial.missed(str(error))


class Trial:
    """The processes of one drill.

    Args:
        drill: which.
        folder: of its own.
        environment: of the run and of the watcher.
        undo: what has to be taken back, in reverse.
        stop: ends it early.
    """

    def __init__(
        self,
        drill: Drill,
        folder: Path,
        environment: Mapping[str, str],
        undo: contextlib.ExitStack,
        stop: threading.Event,
    ) -> None:
        self._drill, self._folder, self._environment = drill, folder, environment
        self._undo, self._stop = undo, stop
        self._trigger, self._cut = folder / "begin", folder / "cut"
        self._output, self._run_dir = folder / "output.txt", folder / "run"
        self._group: ground.MemoryGroup | None = None
        self._driver: FakeNvml | None = None
        self._told: list[Line] = []
        self._lines: queue.Queue[Line] = queue.Queue()

    def run(self) -> Result:
        """The whole of it.

        Raises:
            MissedError: no right answer.
        """
        if "tmpfs" in self._drill.needs:
            self._run_dir = self._undo.enter_context(ground.tmpfs(self._run_dir)) / "run"
        if "memory-cgroup" in self._drill.needs:
            self._group = self._undo.enter_context(ground.memory_group())
        self._run = self._start_run()
        self._watch = self._start_watch()
        self._await(_goes_on, READY_S, "the run was never seen running")
        self._watch_a_while()
        begin_s = time.monotonic()
        self._break()
        answer = self._await(self._is_right, self._drill.within_s, "not named")
        seconds = time.monotonic() - begin_s
        samples = self._count_samples(answer) if self._drill.samples else 0
        if self._drill.heals:
            self._heal()
        return Result(
            drill=self._drill, state="caught", verdict=answer["verdict"],
            failure=answer["failure"], subject=answer["subject"], seconds=round(seconds, 1),
            samples=samples,
        )  # fmt: skip

    def missed(self, why: str) -> Result:
        """With what was said instead."""
        last = self._told[-1] if self._told else {}
        return Result(
            drill=self._drill, state="missed", verdict=last.get("verdict"),
            failure=last.get("failure"), subject=last.get("subject"), why=why,
        )  # fmt: skip

    # -- run and watcher -------------------------------------------------------------------------

    def _start_run(self) -> subprocess.Popen[bytes]:
        argv = [*PROGRAMS, "tied", *self._argv()]
        process = ground.start(argv, self._folder, self._output, self._environment, self._group)
        self._undo.callback(ground.end, process)
        return process

    def _argv(self) -> list[str]:
        drill, trigger = self._drill, str(self._trigger)
        if drill.program == "foreign":
            mode = drill.settings[0]
            words = ("bar",) if mode == "bar" else ("pipeline", mode)
            return [*PROGRAMS, *words, trigger]
        program = [*PROGRAMS, "buffered"] if "buffered" in drill.settings else list(TRAIN)
        settings = [one for one in drill.settings if "=" in one]
        given = ("--preset", "tiny", "--run-dir", str(self._run_dir), "--no-watch")
        return [*program, *given, *TINY, *settings, f"drill.trigger={trigger}"]

    def _start_watch(self) -> subprocess.Popen[bytes]:
        environment = {**self._environment, "XDG_STATE_HOME": str(self._folder / "state")}
        if "compiler" in self._drill.needs:
            self._driver = FakeNvml.build(self._folder / "driver")
            self._driver.reset()
            environment = self._driver.environment(environment)
        which = ["--pid", str(self._run.pid)]
        if self._drill.program == "tiny":
            self._await_run_dir()
            which = ["--run-dir", str(self._run_dir)]
        argv = [*WATCH, *which, "--json", "--incidents", str(self._folder / "incidents")]
        if self._drill.by in ("freeze-link", "cut-link"):
            words = [*PROGRAMS, "link", str(self._cut)]
            argv += ["--exec", " ".join(f"'{word}'" for word in words)]
        watch = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, cwd=self._folder,
            stderr=(self._folder / "watch.txt").open("wb"), env=environment,
            start_new_session=True,
        )  # fmt: skip
        self._undo.callback(self._end_watch, watch)
        threading.Thread(target=self._read, args=(watch,), daemon=True).start()
        return watch

    def _await_run_dir(self) -> None:
        end_s = time.monotonic() + READY_S
        while not (self._run_dir / "run.json").exists():
            if self._run.poll() is not None or time.monotonic() > end_s:
                raise MissedError(f"the run did not start: {self._last_words(self._output)}")
            self._rest()

    def _read(self, watch: subprocess.Popen[bytes]) -> None:
        if watch.stdout is not None:
            for text in watch.stdout:
                self._lines.put(json.loads(text))

    def _end_watch(self, watch: subprocess.Popen[bytes]) -> None:
        watch.terminate()
        try:
            watch.wait(ground.END_S)
        except subprocess.TimeoutExpired:
            ground.end(watch)

    # -- the fault -------------------------------------------------------------------------------

    def _break(self) -> None:
        log = self._log()
        self._trigger.touch()
        match self._drill.by:
            case "stop":
                self._run.send_signal(signal.SIGSTOP)
            case "kill":
                self._run.kill()
                self._run.wait(ground.END_S)  # no zombie of ours: it is to be gone
            case "hang-driver" if self._driver is not None:
                self._driver.hang(POWER)
            case "rename-log":
                log.rename(f"{log}.1")
            case "cut-log":
                (self._folder / "copy.log").write_bytes(log.read_bytes())
                os.truncate(log, 0)
            case "freeze-link":
                self._cut.write_text(programs.FROZEN)  # so that a new one fares no better
                self._signal_link(signal.SIGSTOP)
            case "cut-link":
                self._cut.touch()
                self._signal_link(signal.SIGKILL)
            case "limit-memory" if self._group is not None:
                self._group.limit(self._drill.room_bytes)
        if "tmpfs" in self._drill.needs:
            self._fill_disk()

    def _fill_disk(self) -> None:
        filler = self._run_dir.parent / "filler"
        with filler.open("wb", buffering=0) as out, contextlib.suppress(OSError):
            while out.write(b"\0" * FILL_BYTES):
                pass

    def _heal(self) -> None:
        self._cut.unlink(missing_ok=True)
        if self._drill.by == "stop":
            self._run.send_signal(signal.SIGCONT)
        self._await(_goes_on, HEALED_S, "not running again when healed")

    def _signal_link(self, number: signal.Signals) -> None:
        """To the program between watcher and agent: a child of the watcher."""
        children = Path(f"/proc/{self._watch.pid}/task").glob("*/children")
        pids = [int(pid) for path in children for pid in path.read_text().split()]
        links = [pid for pid in pids if str(self._cut) in _command(pid)]
        if not links:
            raise MissedError("no link between watcher and run was found")
        for pid in links:
            os.kill(pid, number)

    # -- the answer ------------------------------------------------------------------------------

    def _log(self) -> Path:
        return self._run_dir / "train.log" if self._drill.program == "tiny" else self._output

    def _is_right(self, line: Line) -> bool:
        drill = self._drill
        subject = drill.subject.replace("{log}", str(self._log()))
        named = (line["failure"], line["subject"]) == (drill.failure, subject)
        return named and line["verdict"] in drill.verdicts

    def _await(self, is_it: Callable[[Line], bool], within_s: float, otherwise: str) -> Line:
        """The first new line that is it.

        Raises:
            MissedError: none within the time, or the watcher ended.
            KeyboardInterrupt: asked to stop.
        """
        for line in self._new_lines(time.monotonic() + within_s):
            if is_it(line):
                return line
        code = self._watch.poll()
        if code is not None:
            otherwise += f"; the watcher ended with {code}: "
            otherwise += self._last_words(self._folder / "watch.txt")
        raise MissedError(f"{otherwise} within {within_s:.0f} s")

    def _new_lines(self, end_s: float) -> Iterator[Line]:
        while time.monotonic() < end_s:
            self._check_stop()
            try:
                line = self._lines.get(timeout=LOOK_S)
            except queue.Empty:
                if self._watch.poll() is not None and self._lines.empty():
                    return
                continue
            self._told.append(line)
            yield line

    def _watch_a_while(self) -> None:
        """Until threads and pace are known, as of a run that has been going for a time."""
        start_s = time.monotonic()
        for _ in self._new_lines(start_s + SETTLE_S):
            pass
        if self._drill.program == "tiny" and self._limit_s() > TAUGHT_S:
            for line in self._new_lines(start_s + TAUGHT_WITHIN_S):
                if _limit_of(line) <= TAUGHT_S:
                    return

    def _limit_s(self) -> float:
        return _limit_of(self._told[-1]) if self._told else math.inf

    def _count_samples(self, answer: Line) -> int:
        """Stack files of the incident, once it is whole.

        Raises:
            MissedError: no incident, or too few stacks in it.
        """
        kept = answer
        if not kept["incident"]:
            kept = self._await(
                lambda line: bool(line["incident"]) and self._is_right(line),
                KEPT_S,
                "no incident kept",
            )
        found = len(list(Path(kept["incident"]).glob("stacks-*.txt")))
        if found < self._drill.samples:
            raise MissedError(
                f"{found} stack samples in the incident, {self._drill.samples} expected"
            )
        return found

    def _check_stop(self) -> None:
        if self._stop.is_set():
            raise KeyboardInterrupt

    def _rest(self) -> None:
        self._check_stop()
        time.sleep(LOOK_S)

    def _last_words(self, path: Path) -> str:
        lines = path.read_text(errors="replace").splitlines() if path.exists() else []
        return next((line for line in reversed(lines) if line.strip()), "it said nothing")


def _goes_on(line: Line) -> bool:
    return line["verdict"] in ("running", "slow")


def _limit_of(line: Line) -> float:
    return float((line.get("limit") or {}).get("seconds") or math.inf)


def _command(pid: int) -> str:
    with contextlib.suppress(OSError):
        return (
            Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        )
    return ""
