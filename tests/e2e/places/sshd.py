"""A real OpenSSH server on loopback with its own keys, configuration and client configuration.

`ssh_config` knows it as `box`, and as the address of the README; `far` is the same server two jumps
away (`hop-1`, `hop-2`), `piped` goes through a ProxyCommand. The start-up file of its shells can be
made to talk. Each fault is undone by `restore`.
"""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import psutil
from e2e.places.needs import give_up

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_SERVER = """{extra}Port {port}
ListenAddress 127.0.0.1
HostKey {host_key}
AuthorizedKeysFile {work}/authorized_keys
PidFile none
UsePAM no
StrictModes no
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UseDNS no
PrintMotd no
LogLevel VERBOSE
MaxStartups {max_startups}
MaxSessions {max_sessions}
SetEnv PATH={work}/bin:{path} HOME={work}/home
"""

_CLIENT = """Include {work}/included_config

Host hop-1
  HostName 127.0.0.1

Host hop-2
  HostName 127.0.0.1

Host far
  HostName 127.0.0.1
  ProxyJump hop-1,hop-2

Host piped
  HostName 127.0.0.1
  ProxyCommand {python} {work}/pipe.py %h %p

Host *
  Port {port}
  User root
  IdentityFile {work}/id_client
  IdentitiesOnly yes
  HostKeyAlias box
  UserKnownHostsFile {work}/known_hosts_more {work}/known_hosts
  GlobalKnownHostsFile none
  StrictHostKeyChecking yes
"""

_PIPE = """import os, select, socket, sys
link = socket.create_connection((sys.argv[1], int(sys.argv[2])))
while True:
    for ready in select.select([0, link], [], [])[0]:
        data = os.read(0, 65536) if ready == 0 else link.recv(65536)
        if not data:
            sys.exit(0)
        link.sendall(data) if ready == 0 else os.write(1, data)
"""


class Sshd:
    """An sshd of our own; `bin` leads the PATH of its sessions."""

    def __init__(self, work: Path, python: str) -> None:
        self.work, self.port = work, _free_port()
        self.bin = work / "bin"
        self.bin.mkdir()
        (work / "home").mkdir()
        self.ssh_config = str(work / "ssh_config")
        self._server: subprocess.Popen[bytes] | None = None
        for name in ("id_client", "id_stranger", "host_key", "host_key_other"):
            _keygen(work / name)
        shutil.copy(work / "id_client.pub", work / "authorized_keys")
        (work / "pipe.py").write_text(_PIPE)
        (work / "included_config").write_text("Host box 10.1.2.6\n  HostName 127.0.0.1\n")
        (work / "ssh_config").write_text(_CLIENT.format(work=work, port=self.port, python=python))
        self.restore()

    # -- life ------------------------------------------------------------------------------------

    def restore(self) -> None:
        """Up, thawed, silent, with the first host key and ten sessions a connection."""
        self.thaw()
        self.noisy("")
        self.trust("host_key")
        self.configure()

    def configure(
        self,
        *,
        max_sessions: int = 10,
        max_startups: str = "100",
        host_key: str = "host_key",
        extra: str = "",
    ) -> None:
        """Write the configuration and (re)start the listener where it changed.

        Args:
            max_sessions: channels with a command on one connection.
            max_startups: connections that have not logged in (start:rate:full).
            host_key: name of the key it shows.
            extra: lines that stand first, and so win.
        """
        text = _SERVER.format(
            work=self.work,
            port=self.port,
            host_key=self.work / host_key,
            max_sessions=max_sessions,
            max_startups=max_startups,
            extra=extra,
            path=SYSTEM_PATH,
        )
        config = self.work / "sshd_config"
        if self.is_up() and config.read_text() == text:
            return
        config.write_text(text)
        self.down()
        self.up()

    def up(self) -> None:
        """Start the listener and wait for its banner."""
        Path("/run/sshd").mkdir(parents=True, exist_ok=True)
        program = shutil.which("sshd", path=f"{SYSTEM_PATH}")
        argv = [
            str(program),
            "-D",
            "-f",
            str(self.work / "sshd_config"),
            "-E",
            str(self.work / "sshd.log"),
        ]
        self._server = subprocess.Popen(argv, stdin=subprocess.DEVNULL, start_new_session=True)
        deadline = time.monotonic() + 90
        while not self._has_banner():
            if self._server.poll() is not None or time.monotonic() > deadline:
                give_up(f"sshd does not start: {(self.work / 'sshd.log').read_text()[-600:]}")
            time.sleep(0.02)

    def down(self) -> None:
        """Stop the listener and cut every connection: later ones are refused."""
        self.cut()
        if self._server is not None:
            self._server.kill()
            self._server.wait()
            self._server = None

    def is_up(self) -> bool:
        """Whether the listener runs."""
        return self._server is not None and self._server.poll() is None

    # -- faults ----------------------------------------------------------------------------------

    def freeze(self) -> None:
        """SIGSTOP to listener and sessions: packets are acknowledged, nobody answers."""
        _signal(self._all(), signal.SIGSTOP)

    def thaw(self) -> None:
        """Undo `freeze`."""
        _signal(self._all(), signal.SIGCONT)

    def cut(self) -> None:
        """Kill every session process; the listener stays and takes new connections."""
        _signal(self.sessions(), signal.SIGKILL)

    def noisy(self, script: str) -> None:
        """Shell commands that every later session runs before its command (empty: none)."""
        # Bash reads it when sshd starts it, and BASH_ENV then not; what it starts does not.
        (self.work / "home" / ".bashrc").write_text(script)

    def swap_host_key(self) -> None:
        """The server comes back with another host key; the client still knows the first."""
        self.configure(host_key="host_key_other")

    def trust(self, *host_keys: str, marker: str = "", extra: str = "") -> None:
        """What known_hosts says: each key after `marker`; `extra` lines in the first file."""
        lines = [
            f"{marker}box {(self.work / f'{name}.pub').read_text().rsplit(' ', 1)[0]}\n"
            for name in host_keys
        ]
        (self.work / "known_hosts").write_text("".join(lines))
        (self.work / "known_hosts_more").write_text(extra)

    def fingerprint(self, name: str) -> str:
        """`SHA256:...` of one of our keys, as ssh-keygen prints it."""
        return subprocess.check_output(
            ["ssh-keygen", "-lf", str(self.work / f"{name}.pub")], text=True
        ).split()[1]

    def sessions(self) -> list[psutil.Process]:
        """sshd processes that serve a connection."""
        return self._all()[1:]

    # -- details ---------------------------------------------------------------------------------

    def _all(self) -> list[psutil.Process]:
        """The listener first."""
        if not self.is_up():
            return []
        assert self._server is not None
        listener = psutil.Process(self._server.pid)
        return [
            listener,
            *(child for child in listener.children(recursive=True) if _is_sshd(child)),
        ]

    def _has_banner(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as link:
                return link.recv(4) == b"SSH-"
        except OSError:  # not yet
            return False


def _signal(processes: list[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):  # a session that ended by itself in between
            process.send_signal(number)


def _is_sshd(process: psutil.Process) -> bool:
    try:
        return process.name().startswith("sshd")
    except psutil.NoSuchProcess:
        return False


def _keygen(path: Path) -> None:
    argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "bench", "-f", str(path)]
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL)
    path.chmod(0o600)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
