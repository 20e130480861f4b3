"""Snapshots over a real socket: newest only, never waiting, honest about the end."""

import json
import socket
import threading
import time

import msgspec
import pytest
from dflash_tui.demo.feed import DemoFeed, FrozenClock
from dflash_tui.demo.scenes import SCENES
from dflash_tui.feed import SocketFeed, blinded
from dflash_watch.model import Verdict

from tui.screens import scene


def wait_until(holds, timeout_s: float = 90.0) -> bool:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if holds():
            return True
        time.sleep(0.01)
    return False


@pytest.fixture
def ends():
    ours, theirs = socket.socketpair()
    feed = SocketFeed(ours, FrozenClock())
    yield feed, theirs
    feed.close()
    theirs.close()


def line(snapshot) -> bytes:
    return msgspec.json.encode(snapshot) + b"\n"


def test_nothing_has_come_before_the_first_line(ends) -> None:
    assert ends[0].latest() is None


def test_every_scene_survives_the_way_through_the_socket(ends) -> None:
    feed, theirs = ends
    for name in SCENES:
        sent = scene(name)
        theirs.sendall(line(sent))
        assert wait_until(lambda sent=sent: feed.latest() == sent), name


def test_the_newest_of_many_wins_and_a_torn_line_waits(ends) -> None:
    feed, theirs = ends
    first, last = scene("running"), scene("stalled")
    torn = line(scene("crashed"))
    theirs.sendall(line(first) * 50 + line(last) + torn[:100])
    assert wait_until(lambda: feed.latest() == last)
    theirs.sendall(torn[100:])
    assert wait_until(lambda: feed.latest().verdict is Verdict.CRASHED)


def test_an_engine_that_ends_leaves_the_figures_and_no_verdict(ends) -> None:
    feed, theirs = ends
    theirs.sendall(line(scene("running")))
    assert wait_until(lambda: feed.latest() is not None)
    theirs.close()
    assert wait_until(lambda: feed.latest().verdict is Verdict.BLIND)
    assert feed.latest().last_verdict is Verdict.RUNNING
    assert feed.latest().link.reason == "the watcher process has ended"
    assert feed.latest().board == scene("running").board


def test_an_engine_that_ends_before_it_said_anything_is_blind(ends) -> None:
    feed, theirs = ends
    theirs.close()
    assert wait_until(lambda: feed.latest() is not None)
    assert feed.latest().verdict is Verdict.BLIND


@pytest.mark.parametrize("name", ["finished", "crashed"])
def test_an_end_that_was_seen_outlives_the_engine(name: str) -> None:
    assert blinded(scene(name), "gone", 0.0) == scene(name)


def test_a_line_that_is_no_snapshot_is_said_not_swallowed(ends) -> None:
    feed, theirs = ends
    theirs.sendall(b'{"schema": 99}\n')
    assert wait_until(lambda: feed.latest() is not None)
    assert "cannot read" in feed.latest().summary


def test_commands_go_to_the_engine_one_object_a_line(ends) -> None:
    feed, theirs = ends
    feed.send({"op": "retry"})
    feed.send({"op": "stacks"})
    with theirs.makefile("rb") as lines:
        assert [json.loads(next(lines)) for _ in range(2)] == [{"op": "retry"}, {"op": "stacks"}]


def test_sending_to_an_engine_that_does_not_read_never_waits(ends) -> None:
    feed, _ = ends
    sender = threading.Thread(
        target=lambda: [feed.send({"op": "retry", "pad": "x" * 9999}) for _ in range(500)],
        daemon=True,
    )
    sender.start()
    sender.join(timeout=90)
    assert not sender.is_alive()


def test_closing_hangs_up(ends) -> None:
    feed, theirs = ends
    feed.close()
    assert theirs.recv(1) == b""
    assert feed.latest() is None


def test_the_demo_plays_on_until_somebody_chooses() -> None:
    clock = FrozenClock()
    feed = DemoFeed(clock)
    names = []
    for _ in range(3):
        feed.latest()
        names.append(feed.name)
        clock.now_s += 8.0
    assert names == list(SCENES)[:3]
    feed.send({"op": "scene", "step": -1})
    chosen = feed.name
    clock.now_s += 100.0
    feed.latest()
    assert feed.name == chosen
