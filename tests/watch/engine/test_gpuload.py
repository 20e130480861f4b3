"""What a GPU does, read off the rows that a real card gave under known loads."""

from __future__ import annotations

import itertools

import pytest
from dflash_watch.frame import GpuSample
from dflash_watch.window.gpuload import LEAST_S, OVER_S, Load, Look, PowerLine, read_load
from dflash_watch.window.gpus import GpuTrack
from recorded_gpus import hang, loads

WITH_GPM = {
    "context_idle": Load.IDLE, "matmul": Load.WORK, "copy": Load.MEMORY,
    "spin_one_thread": Load.SPIN, "small_launches": Load.HOST,
    "bursts_half_second": Load.HALF, "alloc_churn": Load.ALLOCATOR,
}  # fmt: skip
BY_POWER = WITH_GPM | {"copy": Load.WORK}
"""Power alone does not tell what kind of work it is."""


def read_scenes(*, gpm: bool, histories: bool = True) -> dict[str, set[Load | None]]:
    """Scene -> the readings once the window holds nothing else."""
    track: GpuTrack | None = None
    found: dict[str, set[Load | None]] = {}
    for scene, rows in itertools.groupby(loads(gpm=gpm, histories=histories), lambda row: row[0]):
        for place, (_, t, sample) in enumerate(rows):
            track = track or GpuTrack(sample, t)
            track.take(sample, t)
            if place > OVER_S + 1:  # the first row still holds the end of the scene before
                load = track.reading.load if track.reading is not None else None
                found.setdefault(scene, set()).add(load)
    return found


@pytest.mark.parametrize(("gpm", "expected"), [(True, WITH_GPM), (False, BY_POWER)])
@pytest.mark.parametrize("histories", [True, False])
def test_every_known_load_is_read_as_what_it_is(gpm, expected, histories):
    found = read_scenes(gpm=gpm, histories=histories)
    hidden = set() if histories else {"bursts_half_second"}
    for scene, load in expected.items():
        if scene in found and scene not in hidden:
            assert found[scene] == {load}, scene


def test_bursts_shorter_than_a_look_are_not_seen_without_histories_and_not_called_a_spin():
    assert read_scenes(gpm=False, histories=False)["bursts_half_second"] == {Load.WORK}


@pytest.mark.parametrize("gpm", [True, False])
def test_no_load_is_called_a_spin_between_two_scenes(gpm):
    track: GpuTrack | None = None
    for scene, t, sample in loads(gpm=gpm):
        track = track or GpuTrack(sample, t)
        track.take(sample, t)
        assert not track.spins or scene in {"spin_one_thread", "rest"}


def test_the_idle_line_is_that_of_a_card_with_a_context():
    track: GpuTrack | None = None
    for scene, t, sample in loads():
        track = track or GpuTrack(sample, t)
        track.take(sample, t)
        if scene == "start":
            assert track.idle_watts is None  # 78 W without a context
    assert track is not None
    assert track.idle_watts == pytest.approx(121, abs=2)


@pytest.mark.parametrize("gpm", [True, False])
def test_of_two_ranks_the_one_that_waits_spins_and_the_one_that_does_not_come_idles(gpm):
    tracks: list[GpuTrack] = []
    for t, cards in hang(gpm=gpm):
        tracks = tracks or [GpuTrack(card, t) for card in cards]
        for track, card in zip(tracks, cards, strict=True):
            track.take(card, t)
    said = [track.reading.load for track in tracks if track.reading is not None]
    assert said == [Load.COLLECTIVE if gpm else Load.SPIN, Load.IDLE]


def test_one_sample_is_no_reading():
    look = Look(t=0.0, util=0.0, power=120.0, sm=0.0)
    assert read_load([look], PowerLine(120.0, 700.0)) is None
    few = [Look(t=float(i), util=0.0, power=120.0, sm=0.0) for i in range(int(LEAST_S))]
    assert read_load(few, PowerLine(120.0, 700.0)) is None


def test_a_card_whose_driver_says_neither_power_nor_use_has_no_reading():
    blank = [Look(t=float(i)) for i in range(10)]
    assert read_load(blank, PowerLine(None, None)) is None
    used = [Look(t=float(i), util=1.0) for i in range(10)]
    assert read_load(used, PowerLine(None, None)) is None


def test_a_card_that_is_lost_has_no_reading():
    track: GpuTrack | None = None
    for scene, t, sample in loads():
        track = track or GpuTrack(sample, t)
        track.take(sample, t)
        if scene == "rest":
            break
    assert track is not None
    assert track.reading is not None
    track.take(GpuSample(index=0, state="lost"), track.seen_t + 1)
    assert track.reading is None
