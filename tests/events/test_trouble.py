"""Disk, directory and mount may fail as they like: training goes on and hears nothing."""

import contextlib
import os
import shutil
import subprocess
import threading
import time

import pytest
from dflash_events import RunWriter
from dflash_events.beat_reader import BeatReader
from dflash_events.reader import EventTail, beats_path, open_beats, read_manifest

DEADLINE_S = 120


def until(true, what):
    """Wait for something another thread does; a test that waits in vain fails."""
    end = time.monotonic() + DEADLINE_S
    while not true():
        assert time.monotonic() < end, f"{what} did not happen within {DEADLINE_S} s"
        time.sleep(0.01)


def vanish(run):
    """Take the directory away in one step, whatever is being written in it."""
    gone = run.with_name("gone")
    run.rename(gone)
    shutil.rmtree(gone)


def page_of(writer):
    with BeatReader(writer.page.path) as reader:
        return reader.read()


def kinds(path):
    with EventTail(path) as tail:
        read = tail.read(2**24)
    return [event["kind"] for event in read.events], read.garbage


def write_for_ever(file, block):
    while True:
        file.write(block)


def fill(disk):
    """Write until no byte is free; the file that takes the room."""
    path = disk / "stuffing"
    with path.open("wb", buffering=0) as file:
        for block in (b"x" * 4096, b"x"):
            with pytest.raises(OSError, match="No space left"):
                write_for_ever(file, block)
    return path


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 64 KiB."""
    mount = tmp_path / "disk"
    mount.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "none", mount],
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        pytest.skip(f"needs the right to mount a tmpfs: {done.stderr.strip()}")
    yield mount
    subprocess.run(["umount", "-l", mount], check=True)


def test_a_full_disk_only_raises_counters_and_events_go_on_once_there_is_room(small_disk, shm):
    run = small_disk / "run"
    with RunWriter(run, shm=shm) as writer:
        stuffing = fill(small_disk)
        for step in range(200):
            writer.event("checkpoint", step=step, path="c" * 100)
        until(lambda: page_of(writer)["write_errors"] > 0, "a counted write error")
        page = page_of(writer)
        assert "No space left" in page["last_error"]
        assert "No space left" in writer.trouble()
        stuffing.unlink()
        writer.event("quality", step=1, acceptance_length=2.0)
    seen, garbage = kinds(run / "events.jsonl")
    assert seen.count("checkpoint") == 200
    assert seen[-2:] == ["quality", "exit"]
    assert garbage <= 1, "at most the one line that was cut by the full disk"


def test_a_queue_without_room_drops_periodic_events_before_edges_and_counts(small_disk, shm):
    run = small_disk / "run"
    with RunWriter(run, shm=shm) as writer:
        stuffing = fill(small_disk)
        for step in range(4000):
            writer.throughput(step=step, tokens_per_s=1.0)
        before = page_of(writer)["events_dropped"]
        assert before > 0
        writer.event("worker-failed", worker="target-0", role="target", traceback="...")
        assert page_of(writer)["events_dropped"] == before
        vanish(run)
        stuffing.unlink()


def test_a_vanished_directory_only_raises_counters(tmp_path, shm):
    run = tmp_path / "run"
    with RunWriter(run, shm=shm) as writer:
        worker = writer.worker("main", role="main")
        vanish(run)
        writer.event("checkpoint", step=1, path="c")
        until(lambda: page_of(writer)["write_errors"] > 0, "a counted write error")
        worker.beat(step=5)
        page = page_of(writer)
        assert page["last_error"].startswith("No such file")
        assert page["workers"][0]["step"] == 5
    assert not run.exists(), "what somebody removed is not made again"


def test_a_directory_that_comes_back_gets_the_events_that_waited(tmp_path, shm):
    run = tmp_path / "run"
    with RunWriter(run, shm=shm) as writer:
        vanish(run)
        writer.event("checkpoint", step=1, path="c")
        until(lambda: page_of(writer)["write_errors"] > 0, "a counted write error")
        run.mkdir()
        writer.worker("main", role="main")
    seen, _ = kinds(run / "events.jsonl")
    assert seen == ["checkpoint", "exit"]
    assert read_manifest(run).data["workers"][0]["name"] == "main"


def test_a_mount_that_never_answers_neither_stops_a_worker_nor_the_end(tmp_path, shm):
    """A pipe nobody reads blocks open(2) for ever, as a hung mount blocks it."""
    os.mkfifo(tmp_path / "events.jsonl")
    writer = RunWriter(tmp_path, shm=shm)
    with writer:
        worker = writer.worker("main", role="main")
        for step in range(5000):
            worker.beat(step=step)
            writer.event("numeric", step=step, what="loss", value="nan")
        page = page_of(writer)
        assert page["workers"][0]["step"] == 4999
        assert page["events_dropped"] > 0
    # Let the writer's thread out again: somebody reads the pipe after all.
    reader = os.open(tmp_path / "events.jsonl", os.O_RDONLY | os.O_NONBLOCK)

    def drained():
        with contextlib.suppress(BlockingIOError):
            os.read(reader, 65536)
        return all(thread.name != "dflash-events" for thread in threading.enumerate())

    until(drained, "the end of the writer's thread")
    os.close(reader)


def test_a_run_directory_that_cannot_be_made_is_no_reason_to_fail(tmp_path, shm):
    (tmp_path / "file").write_text("in the way")
    with RunWriter(tmp_path / "file" / "run", shm=shm) as writer:
        writer.worker("main", role="main").beat(step=1)
        assert page_of(writer)["write_errors"] > 0
        assert "Not a directory" in writer.trouble()


@pytest.mark.parametrize("shm_name", ["missing", "full"])
def test_without_shared_memory_the_page_lives_in_an_anonymous_file(tmp_path, small_disk, shm_name):
    shm = tmp_path / "missing"
    if shm_name == "full":
        shm = small_disk
        fill(shm)
    with RunWriter(tmp_path / "run", shm=shm) as writer:
        writer.worker("main", role="main").beat(step=3)
        manifest = read_manifest(tmp_path / "run").data
        assert manifest["beats_path"].startswith(f"/proc/{os.getpid()}/fd/")
        assert str(shm) in manifest["beats_note"]
        with open_beats(tmp_path / "run", manifest) as reader:
            page = reader.read()
    assert page["workers"][0]["step"] == 3
    assert not page["foreign"]
    assert beats_path(tmp_path / "run", manifest) == tmp_path / "run" / "beats"
    assert not list(shm.glob("dflash-beats-*"))


def test_more_workers_than_slots_are_left_out_and_still_work(tmp_path, shm):
    with RunWriter(tmp_path, shm=shm) as writer:
        workers = [writer.worker(f"other-{number}") for number in range(130)]
        for worker in workers:
            worker.beat(step=1)
            with worker.waiting("io", object=f"file of {worker.name}"):
                pass
        page = page_of(writer)
    assert len(page["workers"]) == 128
    assert len(read_manifest(tmp_path).data["workers"]) == 130


def test_many_starts_of_workers_take_no_room_from_events(tmp_path, shm):
    writer = RunWriter(tmp_path, shm=shm)  # not started: nothing leaves the queue
    for _ in range(5000):
        writer.worker("main", role="main")
    writer.event("checkpoint", step=1, path="c")
    assert page_of(writer)["events_dropped"] == 0
    writer.page.unlink()


def test_a_page_that_somebody_scribbled_over_costs_its_words_and_no_event(tmp_path, shm):
    with RunWriter(tmp_path / "run", shm=shm) as writer:
        worker = writer.worker("target-0", "target")
        until((tmp_path / "run" / "events.jsonl").exists, "the file of events")
        for junk in (2**62, -(2**62)):
            for index in range(len(writer.page.words)):
                writer.page.words[index] = junk
            assert worker.state == "unknown"
            worker.emit("quality", step=1)
    assert "quality" in kinds(tmp_path / "run" / "events.jsonl")[0]
