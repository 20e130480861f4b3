"""Rows that the agent made on a real card, from its own record to what the card does."""

from __future__ import annotations

import json
from collections.abc import Iterator

import msgspec
import pytest
from dflash_watch.frame import GpuSample
from dflash_watch.window.gpuload import Load
from dflash_watch.window.gpus import Gpus, GpuTrack
from recorded_gpus import FOLDER, rows

SCENES = {"idle": Load.IDLE, "spin": Load.SPIN, "matmul": Load.WORK, "copy": Load.MEMORY}


def samples(scene: str) -> Iterator[tuple[float, GpuSample]]:
    for row in rows(FOLDER / "agent-rows-h200.jsonl"):
        if row["scene"] == scene:
            yield float(row["look"]), msgspec.convert(row, GpuSample)


@pytest.mark.parametrize(("scene", "load"), SCENES.items())
def test_each_load_of_a_real_card_is_read_as_what_it_is(scene, load):
    made = [sample for _, sample in samples(scene)]
    track = GpuTrack(made[0], 0.0)
    for t, sample in samples(scene):
        track.take(sample, t)
    assert track.reading is not None
    assert track.reading.load is load


@pytest.mark.parametrize("scene", SCENES)
def test_two_looks_already_tell_a_spin_from_all_else(scene):
    first = list(samples(scene))[:3]
    track = GpuTrack(first[0][1], 0.0)
    for t, sample in first:
        track.take(sample, t)
    assert track.seems_to_spin is (scene == "spin")


def test_a_real_card_names_every_field_or_says_why_not():
    told = json.loads((FOLDER / "driver-h200.json").read_text())
    assert told["fields"]["errors"] == {}
    assert told["fields"]["silent"] == ["nvlinks_active", "mig", "xids"]  # none, no, and none


def test_the_driver_counts_processes_in_the_namespace_that_asks_and_hides_those_of_another():
    told = json.loads((FOLDER / "driver-h200.json").read_text())["pids"]
    assert told["namespace"]["listed"] == [told["namespace"]["own"]] == [1]
    assert told["from outside"]["listed"] == [told["from outside"]["front process"] + 1]
    assert told["from another namespace"]["listed"] == []


def energy(*joules: float | None) -> GpuTrack:
    """A card that tells no power, read each half minute."""
    made = [GpuSample(index=0, utilization_ratio=1.0, energy_joules=one) for one in joules]
    track = GpuTrack(made[0], 0.0)
    for look, sample in enumerate(made):
        track.take(sample, 30.0 * look)
    return track


def test_power_comes_from_the_energy_counter_where_a_card_tells_none():
    track = energy(1000.0, 4600.0)
    assert track.energy_watts == (120.0, 30.0)
    assert track.looks[-1].power == 120.0
    assert track.energy_text(0.0) == ", 120 W by its energy counter over 30 s"
    assert track.energy_text(1.0) == ""  # part of its span lies before that


@pytest.mark.parametrize("joules", [(1000.0,), (1000.0, 10.0), (None, 1000.0)])
def test_an_energy_counter_that_began_anew_or_was_read_once_tells_no_power(joules):
    track = energy(*joules)
    assert track.energy_watts is None
    assert track.looks[-1].power is None


def test_a_card_keeps_its_past_when_its_number_changes_and_a_lost_row_tells_no_uuid():
    gpus = Gpus()
    for t in range(3):
        gpus.take(tuple(GpuSample(index=i, uuid=f"GPU-{i}") for i in range(3)), float(t))
    gpus.take((GpuSample(index=0, uuid="GPU-0"), GpuSample(index=1, uuid="GPU-2")), 3.0)
    assert [len(one.looks) for one in gpus.tracks.values()] == [4, 4]
    assert list(gpus.vanished) == ["GPU-1"]
    gpus.take((GpuSample(index=0, state="failed"), GpuSample(index=1, uuid="GPU-2")), 4.0)
    assert gpus.tracks[0].uuid == "GPU-0"
    assert gpus.tracks[0].sample.state == "failed"
    back = tuple(GpuSample(index=i, uuid=f"GPU-{i}") for i in range(3))
    gpus.take(back, 5.0)
    assert not gpus.vanished
    assert [gpus.tracks[i].uuid for i in range(3)] == ["GPU-0", "GPU-1", "GPU-2"]
