"""A recording as a source: at once, or at a multiple of its own pace."""

import pytest
from dflash_watch.commands.replay import LONGEST_PAUSE_S, Replay
from dflash_watch.frame import Tick
from watch.cli.test_cli_check import Hand


def moments(source: Replay, clock: Hand) -> list[float]:
    arrived = []
    while True:
        try:
            record = source.get(0.2)
        except EOFError:
            return arrived
        if record is not None:
            arrived.append(round(clock.now_s, 3))


@pytest.mark.parametrize(
    ("speed", "expected"),
    [(None, [0, 0, 0, 0]), (1.0, [0, 1, 1.5, 1.5 + LONGEST_PAUSE_S]), (10.0, [0, 0.1, 0.15, 5.15])],
)
def test_records_come_at_their_pace_and_long_pauses_are_cut(speed, expected):
    clock = Hand()
    records = iter([Tick(t=t) for t in (50.0, 51.0, 51.5, 500.0)])
    assert moments(Replay(records, clock, speed), clock) == pytest.approx(expected)


def test_a_clock_that_went_back_makes_no_pause():
    clock = Hand()
    records = iter([Tick(t=t) for t in (50.0, 40.0, 41.0)])
    assert moments(Replay(records, clock, 1.0), clock) == pytest.approx([0, 0, 1.0])
