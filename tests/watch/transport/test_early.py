"""OpenSSH's client as the way of a single look: what it is told, and what follows when it fails."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import psutil
import pytest
from dflash_watch.clock import SystemClock
from dflash_watch.frame import Frame, LinkChange, Record
from dflash_watch.place import Place, TargetChoice
from dflash_watch.session import Session
from dflash_watch.transport import way
from dflash_watch.transport.ask import ask_nobody
from dflash_watch.transport.base import Reason, TransportError
from dflash_watch.transport.openssh import client_words, layered_config
from dflash_watch.transport.ssh_options import fetch_options
from e2e.places.fixtures import Proxmox
from e2e.places.sshd import Sshd
from watch.transport.stand_in import MARK, stand_in


def _resolved(place: Place, config: Path) -> dict[str, str]:
    """What `ssh` itself makes of our words for it."""
    words = client_words(place, str(config))
    done = subprocess.run([words[0], "-G", *words[1:]], capture_output=True, text=True, check=True)
    pairs = (line.partition(" ") for line in done.stdout.splitlines())
    return {key: value for key, _, value in pairs}


def test_what_the_person_configured_stands_before_our_defaults(tmp_path: Path) -> None:
    (tmp_path / "own").write_text("Host a\n  User me\n  ConnectTimeout 3\n  LocalForward 1 b:2\n")
    layered = tmp_path / "layered"
    layered.write_text(
        layered_config(str(tmp_path / "own"), {"User": "root", "ConnectTimeout": "10"})
    )
    known, unknown = (_resolved(Place(host=host), layered) for host in ("a", "b"))
    assert (known["user"], known["connecttimeout"]) == ("me", "3")
    assert (unknown["user"], unknown["connecttimeout"]) == ("root", "10")


def test_it_asks_nothing_forwards_nothing_and_leaves_no_master(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("Host *\n  ControlMaster auto\n  RemoteCommand htop\n  RequestTTY force\n")
    told = _resolved(Place(host="a", user="u", port=2200), config)
    assert (told["batchmode"], told["clearallforwardings"]) == ("yes", "yes")
    assert (told["controlmaster"], told["requesttty"]) == ("false", "false")
    assert "remotecommand" not in told or told["remotecommand"] == "none"
    assert (told["user"], told["port"], told["hostname"]) == ("u", "2200", "a")


def test_a_new_host_is_accepted_only_on_request(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("StrictHostKeyChecking yes\n")
    asked = _resolved(Place(host="a", accept_new_host_keys=True), tmp_path / "config")
    unasked = _resolved(Place(host="a"), tmp_path / "config")
    assert asked["stricthostkeychecking"] == "accept-new"
    assert unasked["stricthostkeychecking"] in ("true", "yes")


def test_a_configuration_that_is_not_there_is_said_for_containers_too(tmp_path: Path) -> None:
    place = Place(host="a", ssh_config=str(tmp_path / "none"), entry="pct", entry_arg="200")
    with pytest.raises(TransportError, match="no such file") as caught:
        fetch_options(place)
    assert caught.value.reason is Reason.UNKNOWN_HOST


def test_a_configuration_named_from_here_is_read_from_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "conf").write_text("Host a\n  HostName 10.1.2.6\n")
    monkeypatch.chdir(tmp_path)
    place = Place(host="a", ssh_config="conf", entry="pct", entry_arg="200")
    assert fetch_options(place).hostname == "10.1.2.6"


def _begin(place: Place) -> Session:
    """A session over the early way."""
    program = stand_in()
    early = way.enter_early(place, ("sh", "-c", program.script))
    assert early is not None
    return Session(
        place, TargetChoice(), 0.2, SystemClock(), ask=ask_nobody, program=lambda: program,
        early=early,
    )  # fmt: skip


def _all_until(session: Session, *wanted: str) -> list[Record]:
    """Records up to the first frame or a link in one of these states."""
    seen: list[Record] = []
    end_s = time.monotonic() + 40
    while time.monotonic() < end_s:
        record = session.get(0.2)
        if record is not None:
            seen.append(record)
            if isinstance(record, Frame) or getattr(record, "state", None) in wanted:
                return seen
    raise AssertionError(f"never came: {seen}")


def _steps(seen: list[Record]) -> list[str | None]:
    return [r.step for r in seen if isinstance(r, LinkChange) and r.state == "connecting"]


def _left() -> list[int]:
    """Stand-ins that are still there after ten seconds."""
    end_s = time.monotonic() + 10
    while time.monotonic() < end_s:
        words = [(p.pid, p.info["cmdline"] or []) for p in psutil.process_iter(["cmdline"])]
        left = [pid for pid, cmdline in words if cmdline and MARK in cmdline[-1]]
        if not left:
            return []
        time.sleep(0.05)
    return left


@pytest.mark.lxc
@pytest.mark.ssh
def test_an_early_way_leads_into_the_container_and_is_gone_at_the_end(proxmox: Proxmox) -> None:
    session = _begin(proxmox.place())
    try:
        assert _steps(_all_until(session)) == ["container"]
    finally:
        session.close()
    assert _left() == []


@pytest.mark.ssh
@pytest.mark.parametrize("host", ["box", "far", "piped"])
def test_an_early_way_takes_the_jumps_of_the_configuration(sshd: Sshd, host: str) -> None:
    session = _begin(Place(host=host, ssh_config=sshd.ssh_config))
    try:
        assert _steps(_all_until(session)) == ["agent"]
    finally:
        session.close()
    assert _left() == []


@pytest.mark.ssh
def test_where_the_client_does_not_get_in_our_own_way_says_why(sshd: Sshd) -> None:
    sshd.swap_host_key()
    try:
        session = _begin(Place(host="box", ssh_config=sshd.ssh_config))
        seen = _all_until(session, "closed", "lost")
        session.close()
    finally:
        sshd.restore()
    assert _steps(seen) == ["agent", "resolve", "ssh"]
    last = seen[-1]
    assert isinstance(last, LinkChange)
    assert last.state == "closed"
    assert "SHA256:" in (last.reason or "")


def test_an_unknown_host_is_told_by_our_own_way() -> None:
    session = _begin(Place(host="no-such-host.invalid"))
    last = _all_until(session, "closed", "lost")[-1]
    session.close()
    assert isinstance(last, LinkChange)
    assert "unknown host" in (last.reason or "")


def test_without_openssh_there_is_no_early_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert way.enter_early(Place(host="a"), ("true",)) is None


def test_on_this_machine_the_early_way_is_the_usual_one() -> None:
    session = _begin(Place())
    try:
        assert _steps(_all_until(session)) == ["agent"]
    finally:
        session.close()
    assert _left() == []


def test_closing_a_session_does_not_wait_for_the_next_bytes() -> None:
    session = _begin(Place())
    _all_until(session)
    thread = session._thread
    session.close()
    assert not thread.is_alive()
