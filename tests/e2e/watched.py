"""A run in the container, and the real `dflash-watch` over SSH and `pct` that watches it.

    watched = Watched(proxmox, tmp_path)
    run = watched.tiny("drill.fault=lock-cycle", "drill.at_step=60")
    watch = watched.watch(run)
    line = watch.until(lambda line: line["verdict"] == "stalled", "the verdict")

Deadlines only end a test that has failed; how long things took is measured, never asserted.
Everything is ended by process id, and no agent may be left behind.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import psutil
from e2e.places.container import CHECKOUT, Inside, Spawned
from e2e.places.fixtures import Proxmox

SCRIPTS = Path(__file__).with_name("scripts")
PACKAGES = [str(CHECKOUT / name) for name in ("dflash", "watchdog", "tui")]
DEADLINE_S = 150.0
SMALL = ("target.pretrain_steps=2", "data.num_documents=96", "report.every_steps=1")
"""The tiny run, ready to train within seconds."""
TRAINER = ("-m", "dflash_train.cli")
LONG = "optim.steps=1000000"
INIT = ("sh", "sleep", "/bin/sh", "/sbin/bench-init")
Line = dict[str, Any]
Asks = Callable[[Line], object]


def until(happened: Callable[[], object], what: str, deadline_s: float = DEADLINE_S) -> Any:
    """Wait for something that must come, and return it."""
    end_s = time.monotonic() + deadline_s
    while not (value := happened()):
        if time.monotonic() > end_s:
            raise AssertionError(f"never within {deadline_s:.0f} s: {what}")
        time.sleep(0.05)
    return value


@dataclasses.dataclass(frozen=True, slots=True)
class Run:
    """A program in the container; `folder` and `log` are the same paths on both sides."""

    process: Spawned
    folder: Path
    log: Path
    run_dir: Path | None
    """None for a program that is not ours."""

    def words(self) -> list[str]:
        """How a person names it to `dflash-watch`."""
        if self.run_dir is not None:
            return ["--run-dir", str(self.run_dir)]
        return ["--pid", str(self.process.pid)]

    def text(self) -> str:
        """What it has printed."""
        return self.log.read_text(errors="replace")

    def events(self) -> list[dict[str, Any]]:
        """Of its run directory; a line that is being written is left out."""
        path = (self.run_dir or self.folder) / "events.jsonl"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def says(self, text: str) -> None:
        """Wait until its output holds this."""

        def happened() -> bool:
            assert text in self.text() or self.is_alive(), f"it ended: {self.text()[-2000:]}"
            return text in self.text()

        until(happened, f"{text!r} in {self.log.name}: {self.text()[-400:]}")

    def is_alive(self) -> bool:
        """Whether it still runs."""
        return self.process.attach.poll() is None

    def last_word_t(self) -> float:
        """Wall time of its newest output: about the moment of a fault that silences it."""
        return self.log.stat().st_mtime

    def signal(self, number: int) -> float:
        """Send a signal; the wall time of it."""
        self.process.signal(number)
        return time.time()

    def kill(self) -> None:
        """End it, whatever it is in."""
        if self.is_alive():
            self.process.signal(signal.SIGCONT)
            self.process.signal(signal.SIGKILL)
        self.process.attach.wait(DEADLINE_S)


@dataclasses.dataclass(frozen=True, slots=True)
class Kept:
    """An incident's folder as it lies on disk."""

    folder: Path

    @property
    def verdict(self) -> Line:
        """`verdict.json`."""
        return dict(json.loads((self.folder / "verdict.json").read_text()))

    @property
    def report(self) -> str:
        """`report.md`."""
        return (self.folder / "report.md").read_text()

    @property
    def files(self) -> set[str]:
        """Names of what it holds."""
        return {path.name for path in self.folder.iterdir()}

    def stacks(self) -> list[str]:
        """Texts of the stack samples, in order."""
        return [path.read_text() for path in sorted(self.folder.glob("stacks-*.txt"))]


class Watch:
    """`dflash-watch --json --record` as a process; its lines with the moment each was read."""

    def __init__(self, words: Sequence[str], folder: Path, prefix: Sequence[str] = ()) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.capture = folder, folder / "capture.jsonl"
        self.lines: list[Line] = []
        self.read_t: list[float] = []
        self._errors = folder / "errors.txt"
        argv = [*prefix, sys.executable, "-m", "dflash_watch.cli", *words, "--json"]
        argv += ["--record", str(self.capture), "--incidents", str(folder / "incidents")]
        with self._errors.open("wb") as errors:
            self.process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors,
                env=_environment(folder), cwd=folder, start_new_session=True,
            )  # fmt: skip
        assert self.process.stdout is not None
        self._out = self.process.stdout
        self._reader = threading.Thread(target=self._read, args=(self._out,), daemon=True)
        self._reader.start()

    def _read(self, out: IO[bytes]) -> None:
        for text in out:
            line = json.loads(text)
            self.read_t.append(time.time())
            self.lines.append(line)

    def until(self, asks: Asks, what: str, *, deadline_s: float = DEADLINE_S) -> Line:
        """The first line, told already or to come, that satisfies."""

        def found() -> Line | None:
            said = next((line for line in list(self.lines) if asks(line)), None)
            if said is None and self.process.poll() is not None:
                self._reader.join(5)
                said = next((line for line in self.lines if asks(line)), None)
                assert said is not None, f"it ended before {what}: {self.told()}"
            return said

        try:
            return dict(until(found, what, deadline_s))
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.told()}") from None

    def until_verdict(self, verdict: str, failure: str | None = None) -> Line:
        """The first line with this verdict (and failure)."""
        return self.until(
            lambda line: line["verdict"] == verdict and failure in (None, line["failure"]),
            f"{verdict} {failure or ''}",
        )

    def until_running(self) -> Line:
        """The first line that says so: from here on a fault is a change."""
        return self.until_verdict("running")

    def becomes(self, failure: str) -> Line:
        """Wait until the newest line has this failure; the line."""
        self.until(lambda line: line is self.lines[-1] and line["failure"] == failure, failure)
        return dict(self.lines[-1])

    def until_kept(self, failure: str) -> Kept:
        """The incident's folder, once it is whole."""
        line = self.until(
            lambda line: line["incident"] and line["failure"] == failure, f"incident of {failure}"
        )
        return Kept(Path(line["incident"]))

    def verdicts(self) -> list[str]:
        """The verdicts in order, each once in a row."""
        return [verdict for verdict, _ in itertools.groupby(line["verdict"] for line in self.lines)]

    def changes(self) -> list[tuple[str, str, str]]:
        """Verdict, failure and subject in order, each once in a row."""
        return _changes(self.lines)

    def incidents(self) -> list[Kept]:
        """All folders that were kept."""
        folder = self.folder / "incidents"
        found = sorted(folder.glob("*/verdict.json")) if folder.exists() else []
        return [Kept(path.parent) for path in found]

    def replayed(self) -> list[tuple[str, str, str]]:
        """`changes` as the recording gives them when it is played again."""
        argv = [sys.executable, "-m", "dflash_watch.cli", "replay", "--json", str(self.capture)]
        told = subprocess.check_output(argv, env=_environment(self.folder), text=True)
        return _changes([json.loads(line) for line in told.splitlines()])

    def frames(self) -> int:
        """How many frames were recorded so far."""
        text = self.capture.read_bytes() if self.capture.exists() else b""
        return text.count(b'{"type":"frame"')

    def goes_on(self, frames: int) -> None:
        """Let it look so many times more: for what must *not* be said."""
        goal = self.frames() + frames
        until(lambda: self.frames() >= goal, f"{frames} more frames")

    def told(self) -> str:
        """Everything it said, for the message of a failed test."""
        short = [
            f"  +{line['t'] - self.lines[0]['t']:.1f} {line['verdict']} {line['failure']} "
            f"{line['subject']}: {line['summary'][:150]} explains={line['explains']} "
            f"candidates={[c['failure'] for c in line['candidates']]} "
            f"incident={line['incident']}"
            for line in self.lines
        ]
        return "\n".join([*short, self.errors()])

    def errors(self) -> str:
        """Its standard error."""
        return self._errors.read_text()

    def stop(self) -> int:
        """Ask it to end as a person does; its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(DEADLINE_S)
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            self._reader.join(10)
            self._out.close()
        return code


class Watched:
    """Starts runs in the container and watchers out here, and ends them all."""

    def __init__(self, proxmox: Proxmox, folder: Path) -> None:
        self.proxmox, self.container, self.folder = proxmox, proxmox.container, folder
        self._runs: list[Run] = []
        self._watches: list[Watch] = []
        self._before = {process.host_pid for process in self.container.processes()}

    # -- runs --------------------------------------------------------------------------------

    def tiny(self, *settings: str, watch: bool = False, program: Sequence[object] = TRAINER) -> Run:
        """`dflash-train --preset tiny`, started; it has written its run.json.

        Args:
            settings: after `SMALL` and `LONG`, so that they may say otherwise.
            watch: with the watchdog that the trainer itself starts.
            program: words after the interpreter, in place of the trainer's own.
        """
        folder = self._folder("tiny")
        run_dir = folder / "run"
        argv = [self.container.python, *map(str, program), "--preset", "tiny"]
        argv += ["--run-dir", str(run_dir), "--watch" if watch else "--no-watch"]
        run = self._start([*argv, *SMALL, LONG, *settings], folder, run_dir)
        until(lambda: (run_dir / "run.json").exists() or not run.is_alive(), "run.json")
        assert run.is_alive(), run.text()
        return run

    def foreign(
        self, script: str, *words: object, python: str | None = None, shell: str | None = None
    ) -> Run:
        """A program of `scripts/`, with its output redirected as a user does.

        Args:
            script: its name.
            words: its arguments.
            python: interpreter; default: the one that runs the tests.
            shell: shell text that starts it as `"$@"`; `$0` is the run's folder.
        """
        folder = self._folder(script.removesuffix(".py"))
        shutil.copy(SCRIPTS / script, folder)
        argv = [python or self.container.python, str(folder / script), *map(str, words)]
        if shell is not None:
            argv = ["/bin/sh", "-c", shell, str(folder), *argv]
        return self._start(argv, folder, None)

    def give(self, file: Path) -> Path:
        """A copy of a file at a path that is the same inside."""
        return Path(shutil.copy(file, self.container.share))

    def _start(self, argv: Sequence[str], folder: Path, run_dir: Path | None) -> Run:
        log = folder / "out.log"
        env = {**self.container.environment(), "OMP_NUM_THREADS": "1"}
        run = Run(self.container.spawn(argv, output=log, env=env), folder, log, run_dir)
        self._runs.append(run)
        return run

    def _folder(self, name: str) -> Path:
        folder = self.container.share / f"{self.folder.name}-{len(self._runs)}-{name}"
        folder.mkdir()
        return folder

    # -- watchers ----------------------------------------------------------------------------

    def watch(self, run: Run | None, *words: str) -> Watch:
        """`dflash-watch --host box --ct ID` at this run, or at the newest one found."""
        which = run.words() if run is not None else []
        where = ["--host", "box", "--ct", self.container.id]
        where += ["--ssh-config", self.proxmox.sshd.ssh_config]
        watch = Watch([*where, *which, *words], self.folder / f"watch-{len(self._watches)}")
        self._watches.append(watch)
        return watch

    # -- the end -----------------------------------------------------------------------------

    def strangers(self) -> list[Inside]:
        """Processes inside that were neither there before nor belong to a run."""
        ours = {run.process.host_pid for run in self._runs}
        return [
            process
            for process in self.container.processes()
            if process.host_pid not in self._before | ours and process.cmdline[0] not in INIT
        ]

    def agents(self) -> list[Inside]:
        """The agents inside, without the children each of them has."""
        here = self.strangers()
        inside = {process.host_pid for process in here}
        return [one for one in here if _parent(one.host_pid) not in {None, *inside}]

    def end(self, *, alone: bool = True) -> None:
        """End watchers and runs; no agent is left behind in the container.

        Args:
            alone: nobody else watches anything in this container.

        Raises:
            AssertionError: an agent, or something it started, still runs.
        """
        try:
            for watch in self._watches:
                watch.stop()
            if alone and self._watches and self.container.state() == "RUNNING":
                until(lambda: not self.strangers(), f"the agent's end: {self.strangers()}", 60)
        finally:
            for run in self._runs:
                run.kill()


def _parent(pid: int) -> int | None:
    """None where it has just ended."""
    try:
        return psutil.Process(pid).ppid()
    except psutil.NoSuchProcess:
        return None


def _changes(lines: Sequence[Line]) -> list[tuple[str, str, str]]:
    told = ((line["verdict"], line["failure"], line["subject"]) for line in lines)
    return [change for change, _ in itertools.groupby(told)]


def _environment(folder: Path) -> dict[str, str]:
    """Of the watcher: this checkout's packages, and a home of its own for what it keeps."""
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(PACKAGES),
        "XDG_STATE_HOME": str(folder / "state"),
    }


def at_end(watched: Watched) -> Iterator[Watched]:
    """Body of the fixture: end everything, whatever the test did."""
    try:
        yield watched
    finally:
        watched.end()
