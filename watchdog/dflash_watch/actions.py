"""What the watchdog does to the world: the only module that changes anything.

Two things: stack samples of the watched process (reading, never stopping it) and the person's own
hook. Each is written to a journal: what, to which host, when, with what result. `--dry-run` says
what would have been done and does nothing.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from dflash_watch.clock import Clock
from dflash_watch.frame import StackSample
from dflash_watch.model import Incident, Record, Snapshot, StackRequest, Verdict

logger = logging.getLogger(__name__)
ANSWER_LIMIT_S = 30.0
KILL_LIMIT_S = 2.0
NOT_TAKEN = "not taken: --dry-run"
HOOK_VERDICTS = (Verdict.STALLED, Verdict.CRASHED)


class StackSource(Protocol):
    """Whoever can take a stack sample."""

    def request_stacks(self, pid: int, label: str) -> None:
        """Ask; the sample arrives as a record."""


class Hook(Record, frozen=True, kw_only=True):
    """A command of the person who watches, run once an incident."""

    argv: tuple[str, ...]
    limit_s: float = 60.0


class Journal:
    """What was done, one JSON object a line, for its owner only; said once if it cannot be."""

    def __init__(self, path: Path | None, clock: Clock, host: str) -> None:
        self._path, self._clock, self._host = path, clock, host
        self._lock = threading.Lock()
        self._refused = False

    def write(self, action: str, outcome: str, **details: object) -> None:
        """Append one line with the moment and the host."""
        entry = {"t": self._clock.wall_s(), "host": self._host, "action": action}
        line = json.dumps({**entry, "outcome": outcome, **details}, ensure_ascii=False) + "\n"
        if self._path is None:
            return
        with self._lock:
            try:
                self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                with open(self._path, "a", encoding="utf-8", opener=_private) as file:
                    file.write(line)
            except OSError as error:
                if not self._refused:
                    logger.warning("journal %s: %s; actions are not noted", self._path, error)
                self._refused = True


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


class Actions:
    """Does what the engine or a person asks for, at most once at a time, and notes it.

    Args:
        stacks: takes stack samples; None when nothing can (a recording).
        journal: where it is noted.
        clock: this machine's.
        hook: run once an incident; None for none.
        environment: of the hook, before the DFLASH_* names are added.
        dry_run: do nothing, note what would have been done.
    """

    def __init__(
        self,
        stacks: StackSource | None,
        journal: Journal,
        clock: Clock,
        *,
        hook: Hook | None = None,
        environment: Mapping[str, str] | None = None,
        dry_run: bool = False,
    ) -> None:
        self._stacks, self._journal, self._clock = stacks, journal, clock
        self._hook, self._environment, self._dry_run = hook, dict(environment or {}), dry_run
        self._asked_s: dict[tuple[int, str], float] = {}
        self._refused: list[StackRequest] = []
        self._announced: set[str] = set()
        self._running: HookRun | None = None

    def take_stacks(self, want: StackRequest) -> None:
        """Ask for a sample, unless the same one is still on its way."""
        if self._stacks is None:
            return
        key, now_s = (want.pid, want.label), self._clock.monotonic_s()
        if now_s - self._asked_s.get(key, float("-inf")) < ANSWER_LIMIT_S:
            return
        self._asked_s[key] = now_s
        details = {"pid": want.pid, "label": want.label, "reason": want.reason}
        if self._dry_run:
            self._refused.append(want)
            self._journal.write("stacks", "dry-run", **details)
            return
        self._journal.write("stacks", "asked", **details)
        self._stacks.request_stacks(want.pid, want.label)

    def arrived(self, sample: StackSample) -> None:
        """A sample came: the same one may be asked for again."""
        asked = self._asked_s.pop((sample.pid, sample.label), None) is not None
        if asked and sample.error != NOT_TAKEN:
            self._journal.write(
                "stacks", sample.error or "taken", pid=sample.pid, label=sample.label
            )

    def refusals(self, t: float) -> tuple[StackSample, ...]:
        """Samples that were not taken because of `--dry-run`, as the engine should see them."""
        refused, self._refused = self._refused, []
        return tuple(
            StackSample(t=t, pid=want.pid, label=want.label, tool="none", error=NOT_TAKEN)
            for want in refused
        )

    def announce(self, snapshot: Snapshot) -> None:
        """Run the hook, once an incident; one at a time, in its own thread."""
        incident = snapshot.incident
        if self._hook is None or incident is None or incident.key in self._announced:
            return
        if incident.verdict not in HOOK_VERDICTS:
            return
        if self._running is not None and self._running.is_alive():
            return
        self._announced.add(incident.key)
        if self._dry_run:
            self._journal.write("hook", "dry-run", program=self._hook.argv[0])
            logger.warning("dry run: would run %s", self._hook.argv[0])
            return
        environment = {**self._environment, **hook_environment(snapshot, incident)}
        self._running = HookRun(self._hook, environment, self._note_hook)
        self._running.start()

    def _note_hook(self, outcome: str) -> None:
        logger.warning("on-stall command: %s", outcome)
        if self._hook is not None:
            self._journal.write("hook", outcome, program=self._hook.argv[0])

    def close(self) -> None:
        """End a hook that still runs."""
        if self._running is not None:
            self._running.end()


class HookRun(threading.Thread):
    """One run of the hook: own process group, no input, ended when its time is over."""

    def __init__(
        self, hook: Hook, environment: Mapping[str, str], note: Callable[[str], None]
    ) -> None:
        super().__init__(name="on-stall", daemon=True)
        self._hook, self._environment, self._note = hook, dict(environment), note
        self._process: subprocess.Popen[bytes] | None = None

    def run(self) -> None:
        """Start it, wait, note the outcome."""
        try:
            self._process = subprocess.Popen(
                self._hook.argv,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            self._note(f"{self._hook.argv[0]}: {error.strerror or error}")
            return
        try:
            code = self._process.wait(self._hook.limit_s)
            self._note(f"exit {code}")
        except subprocess.TimeoutExpired:
            self.end()
            with contextlib.suppress(subprocess.TimeoutExpired):  # in state D it stays
                self._process.wait(KILL_LIMIT_S)
            self._note(f"ended after its limit of {self._hook.limit_s:g} s")

    def end(self) -> None:
        """Kill its process group, if it runs."""
        if self._process is not None and self._process.poll() is None:
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except ProcessLookupError:
                return


def hook_environment(snapshot: Snapshot, incident: Incident) -> dict[str, str]:
    """What the hook is told, all as text; outside text travels here, never through a shell."""
    pid = snapshot.board.pid
    told = {
        "DFLASH_RUN": snapshot.run,
        "DFLASH_HOST": snapshot.board.where,
        "DFLASH_VERDICT": incident.verdict.value,
        "DFLASH_FAILURE": incident.failure,
        "DFLASH_SUBJECT": incident.subject,
        "DFLASH_SEVERITY": incident.severity.value,
        "DFLASH_SUMMARY": snapshot.summary,
        "DFLASH_SINCE_S": f"{max(snapshot.t - snapshot.since_t, 0.0):.1f}",
        "DFLASH_INCIDENT": incident.path or "",
        "DFLASH_PID": "" if pid is None else str(pid),
    }
    return {name: text.replace("\0", "") for name, text in told.items()}
