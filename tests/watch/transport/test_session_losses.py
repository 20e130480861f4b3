"""What breaks under a running session, and that it comes back: the link fails, the run does not."""

from __future__ import annotations

import itertools
import os
import threading
import time
from pathlib import Path

import pytest
from dflash_watch.frame import Frame, StackSample
from dflash_watch.place import Place
from dflash_watch.transport import agent_link, backoff
from e2e.places.container import Container
from e2e.places.fixtures import Proxmox
from e2e.places.sshd import Sshd
from watch.transport.stand_in import MARK, Watcher, is_link, watching
from watch.transport.test_session import _agents, _wait_until_gone

pytestmark = [pytest.mark.ssh]


def _comes_back(watcher: Watcher) -> None:
    """Up again, and no frame of the whole session came twice."""
    watcher.wait(lambda record: is_link(record, "up"))
    watcher.frames(2)
    seen = [record.t for record in watcher.seen if isinstance(record, Frame)]
    assert all(earlier < later for earlier, later in itertools.pairwise(seen))


def test_a_cut_connection_is_named_and_the_session_comes_back(sshd: Sshd) -> None:
    before = _agents()
    with watching(Place(host="box", ssh_config=sshd.ssh_config)) as watcher:
        watcher.frames(2)
        sshd.cut()
        watcher.lost("cut")
        _comes_back(watcher)
        assert len(set(_agents()) - set(before)) == 1
    assert _wait_until_gone(before) == []


def test_a_server_that_refuses_after_the_cut_is_named_and_the_session_comes_back(
    sshd: Sshd,
) -> None:
    with watching(Place(host="box", ssh_config=sshd.ssh_config)) as watcher:
        watcher.frames(2)
        sshd.down()
        watcher.lost("refuse")
        sshd.up()
        _comes_back(watcher)


def test_a_frozen_server_is_noticed_though_its_connection_looks_alive(sshd: Sshd) -> None:
    """Finding 5: paramiko's keepalives never notice a dead peer."""
    with watching(Place(host="box", ssh_config=sshd.ssh_config)) as watcher:
        watcher.frames(2)
        sshd.freeze()
        watcher.lost("no answer from the agent")
        watcher.lost("host or sshd is frozen")
        sshd.thaw()
        _comes_back(watcher)


def test_closing_does_not_wait_for_a_frozen_server(sshd: Sshd) -> None:
    before = _agents()
    with watching(Place(host="box", ssh_config=sshd.ssh_config)) as watcher:
        watcher.frames(1)
        sshd.freeze()
        closing = threading.Thread(target=watcher.session.close)
        closing.start()
        closing.join(5)
        assert not closing.is_alive()
    sshd.thaw()
    assert _wait_until_gone(before) == []


@pytest.mark.lxc
def test_a_frozen_container_is_named_not_entered_and_left_alone_until_it_thaws(
    proxmox: Proxmox,
) -> None:
    """Finding 7: an entry into a frozen container hangs, and its child keeps the pipes."""
    with watching(proxmox.place()) as watcher:
        watcher.frames(2)
        proxmox.container.freeze()
        number = proxmox.container.id
        watcher.lost(f"container {number} is frozen (backup or snapshot?)")
        watcher.lost(f"container {number} is frozen")
        inside = len(proxmox.container.processes())
        watcher.lost(f"container {number} is frozen")
        assert len(proxmox.container.processes()) == inside
        proxmox.container.thaw()
        _comes_back(watcher)
    assert _wait_until_gone([]) == []


@pytest.mark.lxc
def test_a_container_that_stops_is_named_and_found_again_when_it_starts(proxmox: Proxmox) -> None:
    with watching(proxmox.place()) as watcher:
        watcher.frames(2)
        proxmox.container.stop()
        watcher.lost(f"container {proxmox.container.id} is not running")
        proxmox.container.start()
        _comes_back(watcher)


@pytest.mark.lxc
def test_an_agent_that_is_killed_is_started_again(proxmox: Proxmox) -> None:
    with watching(proxmox.place()) as watcher:
        watcher.frames(2)
        for process in proxmox.container.processes():
            if MARK in process.cmdline:
                os.kill(process.host_pid, 9)
        watcher.lost("killed by signal 9")
        _comes_back(watcher)


def test_a_stack_request_open_at_a_loss_is_answered_with_the_loss(sshd: Sshd) -> None:
    with watching(Place(host="box", ssh_config=sshd.ssh_config)) as watcher:
        watcher.frames(1)
        sshd.freeze()
        watcher.session.request_stacks(1, "A")
        sample = watcher.wait(lambda record: isinstance(record, StackSample))
        assert "connection lost" in getattr(sample, "error", "")


@pytest.mark.lxc
def test_retry_now_does_not_wait_for_the_pause(container: Container) -> None:
    with watching(Place(entry="pct", entry_arg=container.id)) as watcher:
        watcher.frames(1)
        container.stop()
        watcher.lost("not running")
        container.start()
        watcher.session.retry_now()
        _comes_back(watcher)


def test_a_host_key_that_changes_under_a_session_is_never_taken(sshd: Sshd) -> None:
    place = Place(host="box", ssh_config=sshd.ssh_config, accept_new_host_keys=True)
    with watching(place) as watcher:
        watcher.frames(1)
        sshd.swap_host_key()
        watcher.lost("host key changed (was SHA256:")
        sshd.configure()
        _comes_back(watcher)


def test_a_server_that_allows_one_session_a_connection_is_enough(sshd: Sshd) -> None:
    sshd.configure(max_sessions=1)
    with watching(Place(host="box", ssh_config=sshd.ssh_config)) as watcher:
        watcher.frames(2)
        sshd.cut()
        watcher.lost("cut")
        _comes_back(watcher)


def test_entries_that_hang_do_not_pile_up_and_the_last_one_speaks_when_the_hold_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finding 7: what enters a frozen container stays there. Here nobody says that it is frozen."""
    monkeypatch.setattr(agent_link, "START_S", 0.2)
    monkeypatch.setattr(backoff, "STEPS_S", (0.01,))
    monkeypatch.setattr(backoff, "LEAST_S", 0.01)
    entered, gate = tmp_path / "entered", tmp_path / "gate"
    hangs = 'echo >>"$0"; until [ -e "$1" ]; do sleep 0.05; done; shift; exec "$@"'
    place = Place(exec_prefix=("sh", "-c", hangs, str(entered), str(gate)))

    def count() -> int:
        return len(entered.read_text()) if entered.exists() else 0

    begun_s = time.monotonic()
    with watching(place) as watcher:
        while count() < 6:
            watcher.lost("entered, but the agent did not speak")
        assert time.monotonic() - begun_s >= 0.2 * (1 + 1 + 2 + 4 + 8)
        gate.touch()
        watcher.frames(2)
        assert count() <= 8
