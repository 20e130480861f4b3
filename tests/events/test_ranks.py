"""Several processes write one run directory: slots of their own, one count of events."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from dflash_events import RunDirError, RunWriter, reader
from dflash_events.ranks import JoinedWriter, RankCollector, await_run, launch_id, rank_file

ROOT = Path(__file__).resolve().parents[2]
OTHER = """
import sys
from dflash_events.ranks import JoinedWriter, await_run
run_dir, rank = sys.argv[1], int(sys.argv[2])
manifest = await_run(__import__("pathlib").Path(run_dir), sys.argv[3], 60)
with JoinedWriter(run_dir, rank, manifest["beats_path"]) as writer:
    for number in range(30):
        worker = writer.worker(f"w{rank}-{number}", role="target", device=f"cuda:{number % 8}")
        worker.beat(number)
        with worker.waiting("peer", object=f"thing-{rank}-{number % 4}", on=f"w{rank}-0"):
            writer.numeric(step=number, what="loss", value="nan", worker=worker.name)
        worker.ended()
"""


def events_of(run_dir):
    return [json.loads(line) for line in (run_dir / "events.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    """A run of four processes, three of which join at the same time."""
    folder = tmp_path_factory.mktemp("run") / "run"
    writer = RunWriter(folder, launch={"id": "here", "processes": 4})
    collector = RankCollector(writer, 4)
    with writer, collector:
        main = writer.worker("main", role="main")
        others = [
            subprocess.Popen(
                [sys.executable, "-c", OTHER, folder, str(rank), "here"],
                env={"PYTHONPATH": str(ROOT / "dflash")},
            )
            for rank in (1, 2, 3)
        ]
        for number in range(30):  # texts and slots are asked for by all four at once
            writer.worker(f"w0-{number}", role="drafter").beat(number)
        assert [other.wait(120) for other in others] == [0, 0, 0]
        main.ended()
        collector.finish()
        writer.exit(0, "done")
    return folder


def test_every_worker_of_every_process_has_a_slot_of_its_own(run_dir):
    workers = reader.open_beats(run_dir, reader.read_manifest(run_dir).data).read()["workers"]
    names = [worker["name"] for worker in workers]
    expected = {f"w{rank}-{number}" for rank in range(4) for number in range(30)}
    assert sorted(names) == sorted(expected | {"main"})
    for worker in workers:
        if worker["name"] != "main":
            rank, number = worker["name"][1:].split("-")
            assert worker["step"] == int(number)
            assert worker["role"] == ("drafter" if rank == "0" else "target")
            assert worker["device"] == (None if rank == "0" else f"cuda:{int(number) % 8}")


def test_run_json_names_the_process_of_each(run_dir):
    manifest = reader.read_manifest(run_dir).data
    pids = {worker["name"][:2]: worker["pid"] for worker in manifest["workers"]}
    assert len(manifest["workers"]) == 121
    assert pids["w0"] == manifest["process"]["pid"]
    assert len(set(pids.values())) == 4


def test_events_are_counted_once_and_say_whose_they_are(run_dir):
    events = events_of(run_dir)
    numbers = [event["seq"] for event in events]
    assert sorted(set(numbers)) == list(range(1, len(numbers) + 1))
    told = [event for event in events if event["kind"] == "numeric"]
    for rank in (1, 2, 3):
        assert [e["step"] for e in told if e["rank"] == rank] == list(range(30))
    assert events[-1]["kind"] == "exit"


def test_what_an_earlier_launch_left_is_not_taken_over(tmp_path):
    left = rank_file(tmp_path, 1)
    left.parent.mkdir()
    left.write_text('{"kind":"numeric","worker":"old","step":1}\n')
    writer = RunWriter(tmp_path, launch={"id": "now", "processes": 2})
    collector = RankCollector(writer, 2)
    with writer, collector:
        pass
    assert [event for event in events_of(tmp_path) if event["worker"] == "old"] == []


def test_without_a_page_to_join_a_process_says_so_and_works_on(tmp_path):
    with JoinedWriter(tmp_path, 1, str(tmp_path / "nowhere")) as writer:
        worker = writer.worker("drafter-1", role="drafter")
        worker.beat(7)
        assert worker.step == 7
        assert "page of the run not joined: " in writer.trouble()
    assert '"kind":"worker"' in rank_file(tmp_path, 1).read_text()


def test_a_run_of_another_launch_is_not_joined(tmp_path):
    with RunWriter(tmp_path, launch={"id": launch_id(), "processes": 2}):
        assert await_run(tmp_path, launch_id(), 10)["launch"]["processes"] == 2
        with pytest.raises(RunDirError, match=r"has not written run\.json for 0 s"):
            await_run(tmp_path, "another", 0.0)
