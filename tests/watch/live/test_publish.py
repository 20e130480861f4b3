"""Snapshots down, commands up, over a real socket pair."""

from __future__ import annotations

import json
import socket
import threading

import msgspec
from dflash_watch.model import Board, Snapshot, Verdict
from dflash_watch.publish import Publisher

LONG_S = 60.0


def snapshot(t: float, ballast: str = "") -> Snapshot:
    return Snapshot(
        t=t, run="r", verdict=Verdict.RUNNING, since_t=0.0, failure="healthy", summary=ballast,
        board=Board(run_name="r"),
    )  # fmt: skip


class Ends:
    """Both ends of one link."""

    def __init__(self) -> None:
        self.ours, theirs = socket.socketpair()
        self.commands: list[dict] = []
        self.told, self.gone = threading.Event(), threading.Event()
        self.publisher = Publisher(theirs, self._command, self.gone.set)
        self.ours.settimeout(LONG_S)

    def __enter__(self) -> Ends:
        return self

    def __exit__(self, *_: object) -> None:
        self.ours.close()
        self.publisher.close(LONG_S)

    def _command(self, command) -> None:
        self.commands.append(dict(command))
        self.told.set()


def test_a_snapshot_arrives_whole_as_one_line():
    with Ends() as ends:
        ends.publisher(snapshot(1.0))
        with ends.ours.makefile("rb") as lines:
            line = lines.readline()
        assert msgspec.json.decode(line, type=Snapshot) == snapshot(1.0)


def test_a_dashboard_that_does_not_read_gets_the_newest_when_it_does():
    with Ends() as ends:
        for number in range(200):
            ends.publisher(snapshot(float(number), "x" * 100_000))
        closer = threading.Thread(target=ends.publisher.close, args=(LONG_S,))
        closer.start()
        with ends.ours.makefile("rb") as lines:
            moments = [json.loads(line)["t"] for line in lines]
        closer.join(LONG_S)
        assert moments[-1] == 199.0
        assert len(moments) < 200
        assert moments == sorted(moments)


def test_commands_come_up_and_rubbish_between_them_is_passed_over():
    with Ends() as ends:
        ends.ours.sendall(b'not json\n[1]\n\xff\n{"op": "stacks"}\n')
        assert ends.told.wait(LONG_S)
        assert ends.commands == [{"op": "stacks"}]


def test_a_dashboard_that_goes_is_noticed_while_nothing_is_published():
    with Ends() as ends:
        ends.ours.close()
        assert ends.gone.wait(LONG_S)


def test_publishing_to_a_dashboard_that_went_raises_nothing():
    with Ends() as ends:
        ends.ours.close()
        assert ends.gone.wait(LONG_S)
        for number in range(5):
            ends.publisher(snapshot(float(number)))
        ends.publisher.close(LONG_S)
