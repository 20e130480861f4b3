"""One LXC container (Debian 12 on lxcfs), entered through lxc-attach as root of the host.

Inside: python3, procps and tmux of Debian, this Python environment and this checkout by read-only
bind mounts at their own paths, `share` at its own path for both sides, a /dev/shm; no network, no
py-spy.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
from e2e.places.claim import claim
from e2e.places.inside import Inside, inside, pid_namespace
from e2e.places.needs import give_up

__all__ = ["CHECKOUT", "Container", "Inside", "Spawned"]

CHECKOUT = Path(__file__).resolve().parents[3]
_CGROUP_2 = Path("/sys/fs/cgroup/cgroup.controllers").exists()
_SHOW_MEMORY_GROUP = """[ -z "$(ls /sys/fs/cgroup)" ] || exit 0
mount -t tmpfs none /sys/fs/cgroup && mkdir /sys/fs/cgroup/memory &&
mount -t cgroup -o memory none /sys/fs/cgroup/memory"""
"""Where LXC itself could not show the container its own cgroup (version 1 beside version 2)."""


@dataclass(slots=True)
class Spawned:
    """A command started inside; `pid` counts inside, `host_pid` outside."""

    pid: int
    host_pid: int
    attach: subprocess.Popen[bytes]

    def signal(self, number: int) -> None:
        """Send a signal from the host."""
        os.kill(self.host_pid, number)

    def wait(self, timeout_s: float) -> int:
        """Exit status as lxc-attach reports it: 128 + N for signal N."""
        return self.attach.wait(timeout_s)

    def end(self) -> None:
        """Kill it if it still runs."""
        if self.attach.poll() is None:
            with suppress(ProcessLookupError):  # it ended in between
                self.signal(signal.SIGKILL)
            self.wait(60)


class Container:
    """A container of our own; `id` is numeric as Proxmox's are."""

    def __init__(self, root: Path, work: Path, lxcpath: Path) -> None:
        self.lxcpath, self._root, self._work = lxcpath, root, work
        self.share = work / "share"
        self.share.mkdir()
        self.python = sys.executable
        self._spawned: list[Spawned] = []
        self.id = claim(lxcpath)
        (lxcpath / self.id / "config").write_text(self._config())
        self.start()

    # -- life ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start, with an empty writable layer the first time."""
        log = self._work / "lxc.log"
        self._lxc("start", "-d", "-o", str(log), "-l", "INFO")
        deadline = time.monotonic() + 90
        while self.state() != "RUNNING":
            if time.monotonic() > deadline:
                give_up(f"the container does not start: {log.read_text(errors='replace')[-600:]}")
            time.sleep(0.02)
        self.run(["/bin/sh", "-c", _SHOW_MEMORY_GROUP])

    def stop(self) -> None:
        """Kill everything inside."""
        if self.state() == "FROZEN":
            self.thaw()
        self._lxc("stop", "-k")

    def freeze(self) -> None:
        """As a backup in suspend mode does."""
        self._lxc("freeze")

    def thaw(self) -> None:
        """Undo `freeze`."""
        self._lxc("unfreeze")

    def limit_memory(self, num_bytes: int | None) -> None:
        """As `pct set ID --memory` does on a running container; whoever is beyond it is killed."""
        none = "max" if _CGROUP_2 else str(1 << 62)
        key = "memory.max" if _CGROUP_2 else "memory.limit_in_bytes"
        self._lxc("cgroup", key, none if num_bytes is None else str(num_bytes))

    def memory(self) -> int:
        """Bytes in use by everything inside."""
        return int(self._lxc("cgroup", "memory.current" if _CGROUP_2 else "memory.usage_in_bytes"))

    def state(self) -> str:
        """`RUNNING`, `STOPPED`, `FROZEN`."""
        return self._lxc("info", "-sH", check=False).strip()

    def restore(self) -> None:
        """Running, thawed and without what a test spawned, whatever it did."""
        if self.state() == "FROZEN":
            self.thaw()
        while self._spawned:
            self._spawned.pop().end()
        if self.state() != "RUNNING":
            self.start()
        self.limit_memory(None)

    def remove(self) -> None:
        """Stop it and leave nothing behind."""
        if self.state() != "STOPPED":
            self.stop()
        shutil.rmtree(self.lxcpath / self.id)

    # -- inside ----------------------------------------------------------------------------------

    def run(
        self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, timeout_s: float = 60.0
    ) -> subprocess.CompletedProcess[str]:
        """Run to the end inside. Output goes through files: a frozen child never closes a pipe."""
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            process = self._attach(argv, env, out.fileno(), err.fileno())
            try:
                status = process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                raise
            out.seek(0)
            err.seek(0)
            return subprocess.CompletedProcess(
                list(argv),
                status,
                out.read().decode(errors="replace"),
                err.read().decode(errors="replace"),
            )

    def spawn(
        self, argv: Sequence[str], *, output: Path, env: Mapping[str, str] | None = None
    ) -> Spawned:
        """Start a command inside that `restore` ends; both outputs go to `output`, a path here."""
        mark = Path(tempfile.mkdtemp(dir=self.share)) / "pid"
        script = 'echo $$ > "$1.new"; mv "$1.new" "$1"; shift; exec "$@"'
        with output.open("ab") as sink:
            attach = self._attach(
                ["/bin/sh", "-c", script, "sh", str(mark), *argv], env, sink.fileno(), sink.fileno()
            )
        deadline = time.monotonic() + 90
        while not mark.exists():
            if attach.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(
                    f"{argv[0]} did not start inside: {output.read_text(errors='replace')[-600:]}"
                )
            time.sleep(0.01)
        pid = int(mark.read_text())
        self._spawned.append(Spawned(pid=pid, host_pid=self.host_pid(pid), attach=attach))
        return self._spawned[-1]

    def processes(self) -> list[Inside]:
        """Everything that runs inside now, as seen from the host."""
        init = self._lxc("info", "-pH", check=False).strip()
        if not init:
            return []
        namespace = pid_namespace(int(init))
        found = [inside(pid, namespace) for pid in psutil.pids()]
        return [process for process in found if process is not None]

    def host_pid(self, pid: int) -> int:
        """The host's number of a process inside."""
        return next(process.host_pid for process in self.processes() if process.pid == pid)

    def environment(self) -> dict[str, str]:
        """What a Python inside needs to import this checkout."""
        parts = ("dflash", "watchdog", "tui", "tests")
        return {
            "PYTHONPATH": os.pathsep.join(str(CHECKOUT / part) for part in parts),
            "HOME": "/root",
        }

    def require_python(self) -> None:
        """This environment's Python runs inside; skip (or fail in CI) with the reason if not."""
        done = self.run([self.python, "-c", "import ctypes, ssl, sqlite3"])
        if done.returncode != 0:
            give_up(f"{self.python} does not run inside Debian 12: {done.stderr[-300:]}")

    # -- details ---------------------------------------------------------------------------------

    def _attach(
        self, argv: Sequence[str], env: Mapping[str, str] | None, out: int, err: int
    ) -> subprocess.Popen[bytes]:
        values = [part for key, value in (env or {}).items() for part in ("-v", f"{key}={value}")]
        attach = [
            "lxc-attach",
            "-P",
            str(self.lxcpath),
            "-n",
            self.id,
            "--clear-env",
            *values,
            "--",
            *argv,
        ]
        return subprocess.Popen(
            attach, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
        )

    def _lxc(self, verb: str, *options: str, check: bool = True) -> str:
        argv = [f"lxc-{verb}", "-P", str(self.lxcpath), "-n", self.id, *options]
        done = subprocess.run(
            argv, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=90, check=False
        )
        if check and done.returncode != 0:
            log = self._work / "lxc.log"
            tail = log.read_text(errors="replace")[-600:] if log.exists() else ""
            raise RuntimeError(f"lxc-{verb}: {done.stderr}{tail}")
        return done.stdout

    def _config(self) -> str:
        upper = self._work / "upper"
        upper.mkdir()
        lines = [
            "lxc.include = /usr/share/lxc/config/common.conf",
            f"lxc.uts.name = ct{self.id}",
            f"lxc.rootfs.path = overlay:{self._root}:{upper}",
            "lxc.net.0.type = empty",
            "lxc.apparmor.profile = unconfined",
            "lxc.init.cmd = /sbin/bench-init",
            "lxc.mount.entry = tmpfs dev/shm tmpfs rw,nosuid,nodev,create=dir 0 0",
            f"lxc.mount.entry = {self.share} {str(self.share)[1:]} none bind,rw,create=dir 0 0",
        ]
        lines += [
            f"lxc.mount.entry = {path} {path[1:]} none bind,ro,create=dir 0 0"
            for path in _read_only()
        ]
        spy = Path(sys.prefix) / "bin" / "py-spy"
        if spy.exists():  # the container shall have none of its own
            lines.append(f"lxc.mount.entry = /dev/null {str(spy)[1:]} none bind 0 0")
        return "\n".join(lines) + "\n"


def _read_only() -> list[str]:
    """This environment, the Python below it unless the system's, this checkout; outermost only."""
    wanted = {str(Path(sys.prefix).resolve()), sys.prefix, str(CHECKOUT)}
    if sys.base_prefix not in ("/", "/usr", "/usr/local"):
        wanted |= {sys.base_prefix, str(Path(sys.base_prefix).resolve())}
    return sorted(
        path
        for path in wanted
        if not any(path != other and Path(path).is_relative_to(other) for other in wanted)
    )
