"""Keys of a running ssh-agent, with a deadline: one forwarded over a dead link never answers."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import paramiko
from paramiko.agent import AgentSSH

from dflash_watch.transport.ssh_options import SshOptions

ANSWER_S = 30.0
"""Long enough to touch a hardware key."""


class SshAgent(AgentSSH):
    """The agent behind a socket; without one, or where it refuses, it has no keys."""

    def __init__(self, path: str | None) -> None:
        super().__init__()
        if not path:
            return
        link = socket.socket(socket.AF_UNIX)
        link.settimeout(ANSWER_S)
        try:
            link.connect(path)
            self._connect(link)  # type: ignore[attr-defined]  # not in the stubs
        except (OSError, paramiko.SSHException):
            link.close()

    def close(self) -> None:
        """Let go of the socket."""
        self._close()  # type: ignore[attr-defined]  # not in the stubs


def agent_socket(options: SshOptions) -> str | None:
    """IdentityAgent if it is set, else the environment's; None for no agent."""
    wanted = options.identity_agent or "SSH_AUTH_SOCK"
    if wanted == "none":
        return None
    if wanted == "SSH_AUTH_SOCK" or wanted.startswith("$"):
        return os.environ.get(wanted.lstrip("$").strip("{}"))
    return str(Path(wanted).expanduser())
