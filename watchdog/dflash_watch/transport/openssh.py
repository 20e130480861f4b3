"""OpenSSH's own client: for a single look, and where our own connection cannot (instead.py).

It connects while our own side still loads. It asks nothing and explains nothing. Where it does not
get in, ssh_connect.py does the same again and says why; where there is none, that way is taken from
the start.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence

from dflash_watch.place import Place
from dflash_watch.transport.base import Reason, TransportError, plain, run
from dflash_watch.transport.local import LocalStream, start
from dflash_watch.transport.quoting import shell_line

_OPTIONS = (
    "BatchMode=yes", "ClearAllForwardings=yes", "ControlMaster=no", "EscapeChar=none",
    "LogLevel=ERROR", "PermitLocalCommand=no", "RemoteCommand=none", "RequestTTY=no",
)  # fmt: skip
"""Streams and nothing else. A master that runs already is used; none is left behind."""


class OpenSshHost:
    """A host behind `ssh`: one process a command."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def open(self, argv: Sequence[str], timeout_s: float) -> ClientStream:
        """Start a command, quoted for the login shell; whether it gets in shows later.

        Raises:
            TransportError: no OpenSSH here, or no way to hand it its options.
        """
        refuse_names(self._place)
        defaults = {"ConnectTimeout": f"{max(timeout_s, 1.0):.0f}"}
        if default_user(self._place):
            defaults["User"] = default_user(self._place) or ""
        config = _memory_file(layered_config(self._place.ssh_config, defaults))
        try:
            words = client_words(self._place, f"/proc/{os.getpid()}/fd/{config}")
            return ClientStream(start([*words, shell_line(argv)]), config)
        except TransportError:
            os.close(config)
            raise

    def trouble(self, timeout_s: float) -> TransportError | None:
        """Whether a command gets in: each one has its own connection."""
        reply = run(self, ("true",), timeout_s)
        if reply.status == 0:
            return None
        said = plain(reply.err.strip().splitlines()[-1]) if reply.err.strip() else "no answer"
        return TransportError(Reason.LOST, f"{self._place.host}: ssh: {said}")

    def close(self) -> None:
        """Nothing is held."""


class ClientStream(LocalStream):
    """One `ssh`; its options lie in a memory file that lives as long."""

    def __init__(self, process: subprocess.Popen[bytes], config: int) -> None:
        super().__init__(process)
        self._client, self._config = process, config

    def close(self) -> None:
        """Cut the connection: what runs over there sees the end of its input."""
        self._client.terminate()
        super().close()
        config, self._config = self._config, -1
        if config >= 0:
            os.close(config)


def refuse_names(place: Place) -> None:
    """Host and user reach a shell by way of ProxyCommand (`%h`, `%r`): nothing that it would read.

    Raises:
        TransportError: the name cannot be one.
    """
    host, user = place.host or "", place.user
    if not host or not _is_plain(host) or set(host) & set("$\\"):
        raise TransportError(Reason.UNKNOWN_HOST, f"{host!r}: not a host name")
    if user is not None and (not user or not _is_plain(user) or user.endswith("\\")):
        raise TransportError(Reason.UNKNOWN_HOST, f"{user!r}: not a user name")


def _is_plain(name: str) -> bool:
    """Source: OpenSSH since 9.6 (ssh.c, valid_hostname and valid_ruser); a blank too is refused."""
    marks = set("'`\";&<>|(){} ")
    return name.isprintable() and not name.startswith("-") and not set(name) & marks


def default_user(place: Place) -> str | None:
    """Who one is where nobody said it: root on the host of a Proxmox container."""
    return "root" if place.entry == "pct" and place.user is None else None


def layered_config(config: str | None, defaults: Mapping[str, str]) -> str:
    """Text of an ssh_config: what `config` or else the usual files say, then `defaults`.

    The first value found wins, so what stands last is only a default.

    Raises:
        TransportError: `config` is no file; an Include would pass over it in silence.
    """
    files = ["~/.ssh/config", "/etc/ssh/ssh_config"]
    if config:
        # os.path: pathlib takes 4 ms to load, before the connection is even started.
        files = [os.path.abspath(os.path.expanduser(config))]  # noqa: PTH100, PTH111
        if not os.path.isfile(files[0]):  # noqa: PTH113 - the same
            raise TransportError(Reason.UNKNOWN_HOST, f"ssh_config: {config}: no such file")
    lines = [f'Include "{file}"' for file in files]
    return "\n".join([*lines, "Host *", *(f"  {k} {v}" for k, v in defaults.items()), ""])


def client_words(place: Place, config: str) -> list[str]:
    """Command line of the client up to the host."""
    words = ["ssh", "-T", "-F", config]
    for option in _OPTIONS:
        words += ["-o", option]
    if place.accept_new_host_keys:
        words += ["-o", "StrictHostKeyChecking=accept-new"]
    words += ["-p", str(place.port)] if place.port else []
    words += ["-l", place.user] if place.user else []
    return [*words, "--", place.host or ""]


def _memory_file(text: str) -> int:
    if not hasattr(os, "memfd_create"):
        raise TransportError(Reason.ENTRY_FAILED, "no memory files on this system")
    file = os.memfd_create("ssh_config")
    os.write(file, text.encode())
    return file
