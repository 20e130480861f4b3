"""What a visit to a server adds to the screen, and how a lost server is come back to."""

import socket

import msgspec
import pytest
from dflash_tui.cells import row_text
from dflash_tui.demo.feed import FrozenClock
from dflash_tui.feed import SocketFeed
from dflash_tui.screen import compose
from dflash_watch.model import IncidentStage, Serving, Snapshot, Verdict

from tui.screens import desk_of, scene
from tui.test_dashboard import RecordingFeed, dashboard
from tui.test_feed import line, wait_until


def served(name: str = "running", viewers: int = 1) -> Snapshot:
    told = Serving(name="night", pid=7, since_t=0.0, viewers=viewers)
    return msgspec.structs.replace(scene(name), serving=told)


def acknowledged(snapshot: Snapshot, t: float | None, stage=IncidentStage.CONFIRMED) -> Snapshot:
    incident = msgspec.structs.replace(snapshot.incident, acknowledged_t=t, stage=stage)
    return msgspec.structs.replace(snapshot, incident=incident)


def screen(snapshot: Snapshot, width: int = 120, height: int = 40) -> list[str]:
    return [row_text(row) for row in compose(desk_of(snapshot).screen(), width, height)]


@pytest.mark.parametrize(
    ("width", "wanted"), [(80, " served "), (120, " served "), (160, " served by night +1 ")]
)
def test_the_header_says_that_this_is_a_visit(width: int, wanted: str) -> None:
    assert wanted in screen(served(viewers=2), width)[0]
    assert "served" not in screen(scene("running"), width)[0]


@pytest.mark.parametrize(("width", "wanted"), [(80, "  ack"), (120, "    acknowledged ")])
def test_what_somebody_knows_of_is_marked_while_it_is_open(width: int, wanted: str) -> None:
    stalled = scene("stalled")
    assert wanted in screen(acknowledged(stalled, 5.0), width)[1]
    assert wanted not in screen(acknowledged(stalled, None), width)[1]
    over = acknowledged(stalled, 5.0, IncidentStage.RESOLVED)
    assert wanted not in screen(over, width)[1]


async def test_the_key_acknowledges_the_incident_that_is_shown_and_only_once() -> None:
    app = dashboard("stalled")
    feed: RecordingFeed = app.feed
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("a")
        key = feed.snapshot.incident.key
        assert feed.told == [{"op": "acknowledge", "key": key}]
        feed.snapshot = acknowledged(feed.snapshot, 5.0)
        await pilot.press("a")
        assert "was acknowledged at" in app.picture()
        feed.snapshot = scene("running")
        await pilot.press("a")
        assert "no open incident" in app.picture()
        assert len(feed.told) == 1


@pytest.mark.parametrize(("known_t", "rings"), [(None, 1), (5.0, 0)])
async def test_no_bell_for_what_is_acknowledged(monkeypatch, known_t, rings: int) -> None:
    app = dashboard("running")
    rung = []
    monkeypatch.setattr(app, "bell", lambda: rung.append(True))
    async with app.run_test(size=(120, 40)):
        app.feed.snapshot = acknowledged(scene("stalled"), known_t)
        app.tick()
        assert len(rung) == rings


def test_a_lost_server_is_said_with_its_name_and_come_back_to() -> None:
    first, theirs = socket.socketpair()
    second, again = socket.socketpair()
    doors = [None, second]
    feed = SocketFeed(first, FrozenClock(), reopen=lambda: doors.pop(0))
    try:
        theirs.sendall(line(served()))
        assert wait_until(lambda: feed.latest() is not None)
        theirs.close()
        assert wait_until(lambda: feed.latest().verdict is Verdict.BLIND)
        assert feed.latest().next == (
            "start watcher night again (dflash-watch serve): this dashboard comes back",
        )
        assert " served " not in screen(feed.latest())[0]
        again.sendall(line(served()))
        assert wait_until(lambda: feed.latest().verdict is Verdict.RUNNING)
        feed.send({"op": "retry"})
        assert again.recv(100) == b'{"op":"retry"}\n'
    finally:
        feed.close()
        again.close()


def test_a_dashboard_that_is_left_stops_coming_back() -> None:
    ours, theirs = socket.socketpair()
    tries = []
    feed = SocketFeed(ours, FrozenClock(), reopen=lambda: tries.append(1))
    theirs.close()
    assert wait_until(lambda: tries)
    feed.close()
    feed._thread.join(90)
    assert not feed._thread.is_alive()
