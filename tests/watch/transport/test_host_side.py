"""The second agent over one more channel: beside the run's agent, never in its way."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from dflash_watch.clock import SystemClock
from dflash_watch.frame import Frame, Hello, HostFrame, LinkChange, Record
from dflash_watch.place import Place, TargetChoice
from dflash_watch.session import Session
from dflash_watch.transport.ask import ask_nobody
from dflash_watch.transport.base import Host
from dflash_watch.transport.host_side import HostSide, host_config
from dflash_watch.transport.local import LocalHost
from dflash_watch.transport.openssh import OpenSshHost
from dflash_watch.transport.program import Program
from e2e.places.container import Container
from e2e.places.fixtures import Proxmox
from fake_nvml import FakeNvml

pytestmark = pytest.mark.lxc


class Taken:
    """A session and all that it has handed out."""

    def __init__(self, place: Place) -> None:
        self.records: list[Record] = []
        self.session = Session(place, TargetChoice(), 0.5, SystemClock(), ask=ask_nobody)

    def until(self, wanted: Callable[[Record], object], within_s: float = 90.0) -> Record:
        end_s = time.monotonic() + within_s
        while time.monotonic() < end_s:
            record = self.session.get(0.2)
            if record is None:
                continue
            self.records.append(record)
            if wanted(record):
                return record
        raise AssertionError(f"never came; seen {self.records[-5:]}")

    def host(self, **facts: object) -> HostFrame:
        """The first look of the host in which its container is so."""

        def holds(record: Record) -> bool:
            there = record.container if isinstance(record, HostFrame) else None
            return there is not None and all(getattr(there, k) == v for k, v in facts.items())

        record = self.until(holds)
        assert isinstance(record, HostFrame)
        return record


@pytest.fixture
def taking():
    started: list[Taken] = []

    def start(place: Place) -> Taken:
        started.append(Taken(place._replace(host_side=True)))
        return started[-1]

    yield start
    for one in started:
        one.session.close()


@pytest.mark.ssh
def test_a_silence_that_the_host_explains_is_no_loss(taking, proxmox: Proxmox) -> None:
    taken = taking(proxmox.place())
    taken.host(frozen=False)
    proxmox.container.freeze()
    named = taken.host(frozen=True)
    assert named.container.name == f"container {proxmox.container.id}"
    time.sleep(10)  # longer than a silence that is a loss
    proxmox.container.thaw()
    after = taken.host(frozen=False)
    frame = taken.until(lambda one: isinstance(one, Frame) and one.boot_s > after.boot_s - 1)
    links = [one.state for one in taken.records if isinstance(one, LinkChange)]
    assert links[-1] == "up"
    assert "lost" not in links
    assert frame.seq > 0


@pytest.mark.ssh
def test_a_server_without_a_second_session_is_said_and_the_run_is_seen(
    taking, proxmox: Proxmox
) -> None:
    proxmox.sshd.configure(max_sessions=1)
    taken = taking(proxmox.place())
    refused = taken.until(lambda one: isinstance(one, HostFrame))
    (gap,) = refused.gaps
    assert gap.source == "container-host"
    assert "no further session" in gap.reason
    taken.until(lambda one: isinstance(one, Frame) and one.seq >= 2)


def test_on_the_host_itself_a_container_has_its_host_side_too(
    taking, container: Container, pct: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{pct.parent}:/usr/bin:/bin:/usr/sbin:/sbin")
    taken = taking(Place(entry="pct", entry_arg=container.id))
    assert taken.host(frozen=False).pids


def test_the_init_process_of_a_container_by_nsenter_has_one_as_well(
    taking, container: Container
) -> None:
    init = next(one.host_pid for one in container.processes() if one.pid == 1)
    taken = taking(Place(entry="nsenter", entry_arg=str(init)))
    assert taken.host(frozen=False).pids[str(init)] == 1


def test_gpus_that_the_container_cannot_read_are_asked_for_on_the_host(
    taking, container: Container, pct: Path, fake_nvml: FakeNvml, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The library is found on the host only; the run's process is listed by the host's number."""
    fake_nvml.gpus(1)
    inside = container.spawn(["sleep", "1000"], output=tmp_path / "out")
    fake_nvml.process(0, inside.host_pid, 5 << 30)
    monkeypatch.setenv("PATH", f"{pct.parent}:/usr/bin:/bin:/usr/sbin:/sbin")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(fake_nvml.folder))
    taken = taking(Place(entry="pct", entry_arg=container.id))

    def listed(record: Record) -> object:
        cards = record.gpus if isinstance(record, HostFrame) else None
        return cards and cards[0].processes

    (card,) = taken.until(listed).gpus
    (process,) = card.processes
    assert (process.pid, process.pid_space) == (inside.pid, "container")
    frames = [one for one in taken.records if isinstance(one, Frame)]
    assert not any(one.gpus for one in frames)
    assert "gpu" in {gap.source for one in frames for gap in one.gaps}


def _refusal(host: Host) -> str:
    """Why the second agent is not there, with a script that gets no further than its last line."""
    program = Program(script="echo DFLASH-NO-PYTHON >&2; exit 97", code=b"", sha256="")
    told: queue.Queue[HostFrame] = queue.Queue()
    hello = Hello(
        protocol=1, agent_version="0", python="3", hostname="h", agent_pid=2, agent_start_ticks=3,
        uid=0,
    )  # fmt: skip
    place = Place(host="pve", entry="pct", entry_arg="200")
    config = host_config(place, hello)
    side = HostSide(host, place, program, config, told.put, print, SystemClock())
    try:
        (gap,) = told.get(timeout=60).gaps
    finally:
        side.close()
    assert gap.source == "container-host"
    return str(gap.reason)


def test_a_host_without_python_is_said_in_words() -> None:
    assert "pve, host side: no Python" in _refusal(LocalHost())


def test_where_each_command_is_a_login_there_is_no_second_one() -> None:
    assert "a second login" in _refusal(OpenSshHost(Place(host="pve")))
