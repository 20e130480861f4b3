"""The command of `--on-stall`: run without a shell, bounded in time, its last words kept."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping

import msgspec
from dflash_events.secrets import mask_text

from dflash_watch.model import Incident, Record, Snapshot
from dflash_watch.readers.lines import printable, printable_lines

KEPT_BYTES = 4096
"""Of what it prints: the end, where the reason of a failure stands."""
TERM_S, KILL_S = 1.0, 2.0
"""Between SIGTERM and SIGKILL, and for the end after that."""
_CHUNK = 65536
_LOOK_S = 0.05
_DRAIN_BYTES = 1 << 20


class Hook(Record, frozen=True, kw_only=True):
    """A command of the person who watches, run once an incident."""

    argv: tuple[str, ...]
    limit_s: float = 60.0
    environment: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Before the DFLASH_* names are added."""


class HookResult(Record, frozen=True, kw_only=True):
    """How one run of a hook ended."""

    outcome: str
    """`exit 0`, `killed by signal 9`, `ended after its limit of 60 s`, or why it did not start."""
    seconds: float
    output: str = ""
    """The end of what it printed, masked and printable; at most 4 KiB."""


class HookRun(threading.Thread):
    """One run of the hook: own process group, no input, ended when its time is over.

    Children that outlive a command that ended by itself are left alone.
    """

    def __init__(
        self, hook: Hook, told: Mapping[str, str], tell: Callable[[HookResult], None]
    ) -> None:
        super().__init__(name="on-stall", daemon=True)
        self._hook, self._tell = hook, tell
        self._environment = {**hook.environment, **told}
        self._process: subprocess.Popen[bytes] | None = None
        self._ending = threading.Event()
        self._kept = b""

    def run(self) -> None:
        """Start it, wait, tell how it ended."""
        began_s = time.monotonic()
        try:
            process = self._process = subprocess.Popen(
                self._hook.argv,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            self._tell(HookResult(outcome=f"{self._hook.argv[0]}: {reason}", seconds=0.0))
            return
        outcome = self._follow(process, began_s + self._hook.limit_s)
        if process.stdout is not None:
            process.stdout.close()
        seconds = round(time.monotonic() - began_s, 3)
        self._tell(HookResult(outcome=outcome, seconds=seconds, output=self._words()))

    def end(self, wait_s: float = KILL_S) -> None:
        """End it with its process group, if it runs; returns when it did, or after `wait_s`."""
        self._ending.set()
        if self.is_alive():
            self.join(TERM_S + wait_s)

    def _follow(self, process: subprocess.Popen[bytes], end_s: float) -> str:
        """Read what it prints until it ends; the outcome."""
        while process.poll() is None:
            if self._ending.is_set() or time.monotonic() >= end_s:
                self._kill(process)
                if self._ending.is_set():
                    return "ended with the watching"
                return f"ended after its limit of {self._hook.limit_s:g} s"
            self._read(process, _LOOK_S)
        drained = 0
        while drained < _DRAIN_BYTES and (count := self._read(process, 0.0)):
            drained += count
        code = process.returncode
        return f"killed by signal {-code}" if code < 0 else f"exit {code}"

    def _read(self, process: subprocess.Popen[bytes], wait_s: float) -> int:
        """Bytes that came within `wait_s`; only the end of all is kept."""
        pipe = process.stdout
        if pipe is None or not select.select([pipe], [], [], wait_s)[0]:
            return 0
        data = os.read(pipe.fileno(), _CHUNK)
        if not data and wait_s:
            self._ending.wait(wait_s)  # its output is closed, it goes on
        self._kept = (self._kept + data)[-KEPT_BYTES:]
        return len(data)

    def _kill(self, process: subprocess.Popen[bytes]) -> None:
        """SIGTERM, then SIGKILL, to the whole group; what sleeps in state D stays."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
            end_s = time.monotonic() + TERM_S
            # Not waited for: that would free the number of the group for somebody else's.
            while _is_running(process) and time.monotonic() < end_s:
                time.sleep(_LOOK_S)
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(KILL_S)

    def _words(self) -> str:
        text = self._kept.decode("utf-8", "replace").replace("\r", "\n")
        return mask_text(printable_lines(text)).strip()


def _is_running(process: subprocess.Popen[bytes]) -> bool:
    """Without collecting its status."""
    options = os.WEXITED | os.WNOHANG | os.WNOWAIT
    return os.waitid(os.P_PID, process.pid, options) is None


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
        "DFLASH_INCIDENT_KEY": incident.key,
        "DFLASH_PID": "" if pid is None else str(pid),
    }
    return {name: printable(text) for name, text in told.items()}
