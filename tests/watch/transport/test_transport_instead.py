"""OpenSSH's client where our own connection does not get in."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest
from dflash_watch.place import Place
from dflash_watch.transport import way
from dflash_watch.transport.base import Reason, TransportError, run
from e2e.places.sshd import Sshd
from watch.transport.stand_in import is_link, watching

pytestmark = [pytest.mark.ssh]


def _enter(place: Place) -> tuple[str, list[str]]:
    """Output of a command there, and the steps on the way."""
    said: list[str] = []
    host = way.open_host(place, say=said.append)
    try:
        return run(host, ("echo", "a b"), 60).out, said
    finally:
        host.close()


def _config(sshd: Sshd, folder: Path, lines: str) -> Place:
    (folder / "config").write_text(f"Host box\n{lines}\n{Path(sshd.ssh_config).read_text()}")
    return Place(host="box", ssh_config=str(folder / "config"), connect_timeout_s=30.0)


def test_a_server_without_an_algorithm_of_ours_is_watched_through_openssh(sshd: Sshd) -> None:
    sshd.configure(extra="KexAlgorithms sntrup761x25519-sha512@openssh.com\n")
    with watching(Place(host="box", ssh_config=sshd.ssh_config)) as watcher:
        watcher.frames(2)
        steps = [getattr(r, "step", None) for r in watcher.seen if is_link(r, "connecting")]
        assert "OpenSSH's own client (no algorithm in common with ours)" in steps
        sshd.cut()
        watcher.wait(lambda record: is_link(record, "lost"))
        watcher.frames(2)


def test_a_server_that_neither_can_speak_with_is_told_in_our_words(sshd: Sshd) -> None:
    sshd.configure(extra="KexAlgorithms diffie-hellman-group1-sha1\n")
    with pytest.raises(TransportError, match="no common algorithm"):
        _enter(Place(host="box", ssh_config=sshd.ssh_config))


def test_a_host_key_that_a_command_knows_is_left_to_openssh(sshd: Sshd, tmp_path: Path) -> None:
    sshd.trust()
    line = "box " + (sshd.work / "host_key.pub").read_text()
    (tmp_path / "known").write_text(line)
    place = _config(sshd, tmp_path, f"  KnownHostsCommand /bin/cat {tmp_path}/known")
    assert _enter(place) == (
        "a b\n", ["resolve", "ssh", "OpenSSH's own client (KnownHostsCommand)"],
    )  # fmt: skip


def test_a_person_who_is_logged_in_already_lends_the_connection(sshd: Sshd, tmp_path: Path) -> None:
    """Second factors: ControlMaster in the configuration, one login by hand."""
    place = _config(sshd, tmp_path, f"  ControlPath {tmp_path}/master")
    words = ["ssh", "-F", str(place.ssh_config), "-o", "BatchMode=yes", "-M", "-N", "box"]
    with subprocess.Popen(words, stdin=subprocess.DEVNULL) as master:
        try:
            end_s = time.monotonic() + 90
            while not (tmp_path / "master").exists() and time.monotonic() < end_s:
                time.sleep(0.02)
            keys = sshd.work / "authorized_keys"
            keys.rename(keys.with_suffix(".off"))
            try:
                out, said = _enter(place)
            finally:
                keys.with_suffix(".off").rename(keys)
        finally:
            master.terminate()
    assert (out, said[-1]) == ("a b\n", "OpenSSH's own client (a master connection)")


def test_a_refusal_stays_a_refusal_where_openssh_knows_no_more(sshd: Sshd, tmp_path: Path) -> None:
    config = _config(sshd, tmp_path, "  GSSAPIAuthentication yes")
    text = Path(str(config.ssh_config)).read_text().replace("id_client", "id_stranger")
    Path(str(config.ssh_config)).write_text(text)
    with pytest.raises(TransportError, match="login as root refused") as caught:
        _enter(config)
    assert caught.value.reason is Reason.AUTH_REFUSED
