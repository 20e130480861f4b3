"""What a service manager hears, over a real datagram socket."""

import os
import socket

import msgspec
import pytest
from dflash_watch.model import Snapshot, Verdict
from dflash_watch.serving.notify import ServiceManager

RUNNING = Snapshot(
    t=0.0, run="a", verdict=Verdict.RUNNING, since_t=0.0, failure="healthy", summary="s"
)


class Clock:
    now_s = 100.0

    def monotonic_s(self) -> float:
        return self.now_s


@pytest.fixture
def ears(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
        made.bind(str(tmp_path / "notify"))
        made.setblocking(False)
        yield made


def heard(ears) -> list[str]:
    told = []
    while True:
        try:
            told += ears.recv(4096).decode().split("\n")
        except BlockingIOError:
            return told


def manager(ears, clock, **more) -> ServiceManager:
    return ServiceManager({"NOTIFY_SOCKET": ears.getsockname(), **more}, clock)


def test_it_is_ready_with_the_first_snapshot_and_says_what_it_sees(ears):
    told = manager(ears, Clock())
    told(RUNNING)
    told(RUNNING)
    assert heard(ears) == ["READY=1", "STATUS=RUNNING a"]
    told(msgspec.structs.replace(RUNNING, verdict=Verdict.STALLED, failure="gil-held"))
    assert heard(ears) == ["STATUS=STALLED a [gil-held]"]
    told.stopping()
    assert heard(ears) == ["STOPPING=1"]


def test_signs_of_life_come_with_snapshots_at_half_the_managers_patience(ears):
    clock = Clock()
    told = manager(ears, clock, WATCHDOG_USEC="20000000", WATCHDOG_PID=str(os.getpid()))
    for _ in range(25):
        told(RUNNING)
        clock.now_s += 1.0
    assert heard(ears).count("WATCHDOG=1") == 3


def test_a_loop_that_stands_still_sends_no_sign_of_life(ears):
    clock = Clock()
    told = manager(ears, clock, WATCHDOG_USEC="2000000")
    told(RUNNING)
    heard(ears)
    clock.now_s += 100.0
    assert heard(ears) == []


@pytest.mark.parametrize(
    "more", [{}, {"WATCHDOG_USEC": "x"}, {"WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1"}]
)
def test_a_watchdog_that_is_somebody_elses_gets_no_sign(ears, more):
    manager(ears, Clock(), **more)(RUNNING)
    assert "WATCHDOG=1" not in heard(ears)


def test_an_abstract_socket_is_heard_as_well():
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ears:
        ears.bind(f"\0dflash-test-{os.getpid()}")
        ears.setblocking(False)
        ServiceManager({"NOTIFY_SOCKET": f"@dflash-test-{os.getpid()}"}, Clock())(RUNNING)
        assert "READY=1" in heard(ears)


@pytest.mark.parametrize("address", ["", "nonsense", "/nowhere/at/all"])
def test_where_nobody_listens_nothing_happens(address):
    told = ServiceManager({"NOTIFY_SOCKET": address}, Clock())
    told(RUNNING)
    told.stopping()


def test_a_manager_that_does_not_read_is_not_waited_for(ears):
    told = manager(ears, Clock(), WATCHDOG_USEC="0")
    for _ in range(1000):
        told(RUNNING)


def test_a_run_with_a_name_of_many_lines_adds_no_line(ears):
    manager(ears, Clock())(msgspec.structs.replace(RUNNING, run="a\nMAINPID=1\x1b[2J"))
    assert [line.partition("=")[0] for line in heard(ears)] == ["READY", "STATUS"]
