"""Hosts: commands over real ways, full pipes on both sides, and one clear line a failure."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from dflash_watch.place import Place
from dflash_watch.transport import ssh_connect, way
from dflash_watch.transport.base import Host, Reason, Reply, TransportError, run
from dflash_watch.transport.local import LocalHost
from dflash_watch.transport.ssh import SshHost
from e2e.paths.relay import UP, Relay
from e2e.places.sshd import Sshd

FIVE_MB = 5_000_000


def _place(sshd: Sshd, host: str = "box", **more: object) -> Place:
    return Place(**{"host": host, "ssh_config": sshd.ssh_config, "connect_timeout_s": 30.0} | more)  # type: ignore[arg-type]  # a test's shorthand


def _run(host: Host, *argv: str) -> Reply:
    return run(host, argv, 60.0)


@pytest.fixture(params=["here", "ssh"])
def host(request: pytest.FixtureRequest) -> Iterator[Host]:
    """This machine, and the same machine over SSH."""
    is_here = request.param == "here"
    found = LocalHost() if is_here else way.open_host(_place(request.getfixturevalue("sshd")))
    yield found
    found.close()


@pytest.mark.ssh
def test_output_error_and_status_arrive_apart(host: Host) -> None:
    reply = _run(host, "sh", "-c", "echo out; echo err >&2; exit 7")
    assert (reply.status, reply.out, reply.err) == (7, "out\n", "err\n")


@pytest.mark.ssh
def test_arguments_arrive_as_they_are(host: Host) -> None:
    hostile = ["a b", "$(id)", "it's", "\\", "*", ""]
    assert _run(host, "printf", "<%s>", *hostile).out == "".join(f"<{word}>" for word in hostile)


@pytest.mark.ssh
def test_five_megabytes_of_error_do_not_block_the_output(host: Host) -> None:
    script = f"head -c {FIVE_MB} /dev/zero >&2; echo done"
    assert _run(host, "sh", "-c", script).out == "done\n"


@pytest.mark.ssh
def test_a_command_that_does_not_end_is_left_at_the_deadline(host: Host) -> None:
    assert run(host, ["sh", "-c", "echo begun; sleep 60"], 1.0).status is None


@pytest.mark.ssh
def test_input_larger_than_every_buffer_goes_through(host: Host) -> None:
    stream = host.open(["sh", "-c", "wc -c"], 10)
    rest, end_s = b"x" * FIVE_MB, time.monotonic() + 30
    while rest and time.monotonic() < end_s:
        rest = rest[stream.send(rest) :]
    stream.end_input()
    assert stream.receive(20) == b"%d\n" % FIVE_MB
    stream.close()


def test_closing_ends_a_command_that_ignores_the_end_of_its_input_and_sigterm() -> None:
    stream = LocalHost().open(["sh", "-c", "trap '' TERM; echo $$; while :; do sleep 1; done"], 1)
    pid = int(stream.receive(10) or b"0")
    stream.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_program_that_is_not_there_is_named() -> None:
    with pytest.raises(TransportError, match="no-such-tool: no such program on this machine"):
        LocalHost().open(["no-such-tool"], 1)


@pytest.mark.ssh
def test_a_command_killed_by_a_signal_is_not_taken_for_an_answer(sshd: Sshd) -> None:
    """Finding 4: paramiko says -1 for a signal and for a lost connection."""
    found = way.open_host(_place(sshd))
    assert _run(found, "sh", "-c", "kill -9 $$").status is None
    found.close()


def _refusal(place: Place) -> TransportError:
    with pytest.raises(TransportError) as caught:
        way.open_host(place).close()
    assert "\n" not in str(caught.value)
    return caught.value


def test_a_host_that_does_not_exist() -> None:
    error = _refusal(Place(host="no-such-host.invalid"))
    assert (error.reason, error.permanent) == (Reason.UNKNOWN_HOST, True)
    assert "no-such-host.invalid: unknown host" in str(error)


def test_a_port_where_nobody_listens() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        error = _refusal(Place(host="127.0.0.1", port=taken.getsockname()[1]))
    assert (error.reason, error.permanent) == (Reason.REFUSED, False)


def test_a_port_where_somebody_listens_who_is_no_sshd() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        error = _refusal(Place(host="127.0.0.1", port=port, connect_timeout_s=1.0))
    assert error.reason is Reason.TIMEOUT
    assert "no SSH banner" in str(error)


@pytest.mark.ssh
def test_a_machine_without_a_free_descriptor_cannot_connect_now_and_may_later(
    sshd: Sshd,
) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        with pytest.raises(TransportError, match="this machine cannot connect") as raised:
            ssh_connect.connect(_place(sshd))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert not raised.value.permanent


@pytest.mark.ssh
def test_a_new_host_key_that_cannot_be_kept_is_told_with_its_file(
    sshd: Sshd, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    known = tmp_path / "file" / "known_hosts"
    config = tmp_path / "config"
    config.write_text(
        f"Host box\n  UserKnownHostsFile {known}\n  GlobalKnownHostsFile none\n"
        f"Include {sshd.ssh_config}\n"
    )
    place = _place(sshd, ssh_config=str(config), accept_new_host_keys=True)
    with pytest.raises(TransportError, match=f"cannot connect: .*{tmp_path}/file"):
        way.open_host(place)


@pytest.mark.ssh
def test_a_frozen_sshd_does_not_hold_the_caller(sshd: Sshd) -> None:
    sshd.freeze()
    assert _refusal(_place(sshd, connect_timeout_s=1.0)).reason is Reason.TIMEOUT


@pytest.mark.ssh
def test_a_changed_host_key_is_explained_with_both_fingerprints(sshd: Sshd) -> None:
    sshd.swap_host_key()
    error = _refusal(_place(sshd, accept_new_host_keys=True))
    assert error.reason is Reason.HOST_KEY_CHANGED
    was, now = sshd.fingerprint("host_key"), sshd.fingerprint("host_key_other")
    assert f"host key changed (was {was}, is {now})" in str(error)
    assert "ssh-keygen -R 'box'" in str(error)


@pytest.mark.ssh
def test_an_unknown_host_key_is_accepted_only_on_request_and_then_remembered(sshd: Sshd) -> None:
    sshd.trust()
    error = _refusal(_place(sshd))
    assert error.reason is Reason.HOST_KEY_UNKNOWN
    assert sshd.fingerprint("host_key") in str(error)
    way.open_host(_place(sshd, accept_new_host_keys=True)).close()
    way.open_host(_place(sshd)).close()


@pytest.mark.ssh
def test_a_revoked_host_key_is_refused(sshd: Sshd) -> None:
    line = f"@revoked * {(sshd.work / 'host_key.pub').read_text()}"
    sshd.trust("host_key", extra=line)
    assert _refusal(_place(sshd, accept_new_host_keys=True)).reason is Reason.HOST_KEY_REVOKED


@pytest.mark.ssh
def test_authority_and_broken_lines_in_known_hosts_cost_nothing(sshd: Sshd) -> None:
    authority = f"@cert-authority *.lab {(sshd.work / 'host_key_other.pub').read_text()}"
    sshd.trust("host_key", extra=f"{authority}not a line\nbox ssh-ed25519 %%%\n")
    way.open_host(_place(sshd)).close()


@pytest.mark.ssh
def test_a_key_that_the_server_does_not_know_is_refused_with_what_was_tried(
    sshd: Sshd, tmp_path: Path
) -> None:
    config = Path(sshd.ssh_config).read_text().replace("id_client", "id_stranger")
    (tmp_path / "config").write_text(config)
    error = _refusal(_place(sshd, ssh_config=str(tmp_path / "config")))
    assert error.reason is Reason.AUTH_REFUSED
    assert "login as root refused" in str(error)
    assert "id_stranger" in str(error)


@pytest.mark.ssh
def test_one_session_too_many_is_refused_by_name_and_the_others_go_on(sshd: Sshd) -> None:
    sshd.configure(max_sessions=2)
    found = way.open_host(_place(sshd))
    held = [found.open(["cat"], 5) for _ in range(2)]
    with pytest.raises(TransportError, match="MaxSessions") as caught:
        found.open(["true"], 5)
    assert caught.value.reason is Reason.SESSION_REFUSED
    held[0].send(b"still here")
    assert held[0].receive(10) == b"still here"
    found.close()


@pytest.mark.ssh
@pytest.mark.parametrize("jump", ["", "  ProxyJump relayed-hop\n"])
def test_a_network_that_takes_nothing_does_not_hold_the_sender(
    sshd: Sshd, tmp_path: Path, jump: str
) -> None:
    """Every wait has a limit: paramiko itself writes to a full socket for ever."""
    relay = Relay(sshd.port, buffer_bytes=16384)
    try:
        hosts = f"Host relayed{'-hop' if jump else ''}\n  HostName 127.0.0.1\n  Port {relay.port}\n"
        more = f"Host relayed\n  HostName 127.0.0.1\n{jump}" if jump else ""
        (tmp_path / "config").write_text(f"{hosts}{more}{Path(sshd.ssh_config).read_text()}")
        found = way.open_host(_place(sshd, "relayed", ssh_config=str(tmp_path / "config")))
        stream = found.open(["sh", "-c", "cat >/dev/null"], 30)
        relay.held = frozenset({UP})
        rest = b"x" * FIVE_MB
        while (sent := stream.send(rest)) > 0:
            rest = rest[sent:]
        assert rest
        stream.close()
        found.close()
    finally:
        relay.close()


@pytest.mark.ssh
def test_trouble_tells_a_cut_a_refusal_and_a_frozen_server_apart(sshd: Sshd) -> None:
    found = way.open_host(_place(sshd))
    assert isinstance(found, SshHost)
    assert found.trouble(4) is None
    sshd.freeze()
    frozen = found.trouble(4)
    sshd.thaw()
    sshd.cut()
    end_s = time.monotonic() + 90  # an answer from before the cut may still be on its way
    while found._transport.is_active() and time.monotonic() < end_s:
        time.sleep(0.02)
    cut = found.trouble(4)
    sshd.down()
    refused = found.trouble(4)
    reasons = [error.reason for error in (frozen, cut, refused) if error is not None]
    assert reasons == [Reason.TIMEOUT, Reason.LOST, Reason.REFUSED]
    found.close()


@pytest.mark.ssh
def test_a_key_with_a_passphrase_asks_once_and_only_where_somebody_answers(
    sshd: Sshd, tmp_path: Path
) -> None:
    locked = tmp_path / "id_locked"
    locked.write_bytes((sshd.work / "id_client").read_bytes())
    locked.chmod(0o600)
    argv = ["ssh-keygen", "-q", "-p", "-P", "", "-N", "sesame", "-f", str(locked)]
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL)
    config = Path(sshd.ssh_config).read_text().replace(str(sshd.work / "id_client"), str(locked))
    (tmp_path / "config").write_text(config)
    place = _place(sshd, ssh_config=str(tmp_path / "config"))
    assert "has a passphrase, nobody to ask" in str(_refusal(place))
    asked: list[str] = []

    def answer(question: str) -> str:
        asked.append(question)
        return "sesame"

    way.open_host(place, answer).close()
    assert asked == [f"passphrase for {locked}: "]


@pytest.mark.ssh
def test_a_local_ssh_agent_is_used(
    sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "agent")
    with subprocess.Popen(["ssh-agent", "-D", "-a", path], stdout=subprocess.DEVNULL) as agent:
        try:
            end_s = time.monotonic() + 90
            while not Path(path).exists() and time.monotonic() < end_s:
                time.sleep(0.02)
            monkeypatch.setenv("SSH_AUTH_SOCK", path)
            key = str(sshd.work / "id_client")
            subprocess.run(["ssh-add", "-q", key], check=True, stdin=subprocess.DEVNULL)
            config = Path(sshd.ssh_config).read_text().replace(f"IdentityFile {key}", "")
            (tmp_path / "config").write_text(config.replace("IdentitiesOnly yes", ""))
            way.open_host(_place(sshd, ssh_config=str(tmp_path / "config"))).close()
        finally:
            agent.send_signal(signal.SIGTERM)
