"""Secrets are asked for on a terminal only; a server that asks is one of paramiko's on loopback."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import paramiko
import pytest
from dflash_watch.place import Place
from dflash_watch.transport import way
from dflash_watch.transport.base import Reason, TransportError
from e2e.places.container import CHECKOUT

ASKS = "from dflash_watch.transport.ask import ask_on_terminal as ask; print('got', ask('code: '))"


class Asking(paramiko.ServerInterface):
    """Wants a code, then a password; with `is_mute` it never says whether a key will do."""

    def __init__(self, *, is_mute: bool) -> None:
        self._is_mute, self.over = is_mute, threading.Event()

    def get_allowed_auths(self, username: str) -> str:
        return "publickey,keyboard-interactive"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        if self._is_mute:
            self.over.wait(60)
        return paramiko.AUTH_FAILED

    def check_auth_interactive(self, username: str, submethods: str) -> paramiko.InteractiveQuery:
        return paramiko.InteractiveQuery("", "", ("Code: ", False), ("Again: ", False))

    def check_auth_interactive_response(self, responses: list[str]) -> int:
        return paramiko.AUTH_SUCCESSFUL if responses == ["12", "34"] else paramiko.AUTH_FAILED

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return paramiko.OPEN_SUCCEEDED


@pytest.fixture(params=[False])
def asking(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """The way to such a server."""
    server, key = Asking(is_mute=request.param), paramiko.ECDSAKey.generate()
    key.write_private_key_file(str(tmp_path / "id"))
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            transport = paramiko.Transport(listener.accept()[0])
            transport.add_server_key(key)
            transport.set_log_channel("dflash_watch.paramiko")
            transport.start_server(server=server)
            server.over.wait(90)
            transport.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        config = tmp_path / "config"
        config.write_text(
            f"Host asking\n HostName 127.0.0.1\n Port {listener.getsockname()[1]}\n"
            f" User root\n IdentityFile {tmp_path}/id\n IdentitiesOnly yes\n"
            f" UserKnownHostsFile {tmp_path}/known\n StrictHostKeyChecking accept-new\n"
        )
        yield Place(host="asking", ssh_config=str(config), connect_timeout_s=4.0)
        server.over.set()
        thread.join(30)


def test_what_the_server_asks_is_asked_of_the_person(asking: Place) -> None:
    asked: list[str] = []

    def answer(question: str) -> str:
        asked.append(question)
        return {"C": "12", "A": "34"}[question.removeprefix("root@asking: ")[0]]

    way.open_host(asking, answer).close()
    assert asked == ["root@asking: Code: ", "root@asking: Again: "]


def test_where_nobody_can_be_asked_the_login_is_refused(asking: Place) -> None:
    with pytest.raises(TransportError, match="login as root refused") as caught:
        way.open_host(asking)
    assert caught.value.reason is Reason.AUTH_REFUSED


@pytest.mark.parametrize("asking", [True], indirect=True)
def test_a_server_that_never_answers_a_login_has_not_refused_it(asking: Place) -> None:
    with pytest.raises(TransportError, match="sshd does not answer") as caught:
        way.open_host(asking)
    assert (caught.value.reason, caught.value.permanent) == (Reason.TIMEOUT, False)


ENVIRONMENT = {"PYTHONPATH": f"{CHECKOUT}/watchdog:{CHECKOUT}/dflash", "PATH": "/usr/bin:/bin"}


def test_a_secret_is_asked_for_on_a_terminal_without_echo() -> None:
    ours, theirs = os.openpty()
    words = ["setsid", "--ctty", sys.executable, "-c", ASKS]
    with subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs, env=ENVIRONMENT):
        os.close(theirs)
        said = b""
        while not said.endswith(b"code: "):
            said += os.read(ours, 1)
        os.write(ours, b"sesame\n")
        while not said.endswith(b"sesame\r\n"):
            said += os.read(ours, 1)
    os.close(ours)
    assert said == b"code: \r\ngot sesame\r\n"


def test_without_a_terminal_nobody_is_asked() -> None:
    words = [sys.executable, "-c", ASKS]
    out = subprocess.check_output(words, input=b"sesame\n", env=ENVIRONMENT, timeout=90)
    assert out == b"got None\n"
