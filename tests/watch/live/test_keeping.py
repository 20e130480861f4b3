"""Incidents on their way to disk."""

import threading
import time
from pathlib import Path

import msgspec
import pytest
from dflash_watch.commands.keeping import RecentRecords, Shelf, unpack
from dflash_watch.errors import WatchError
from dflash_watch.frame import Frame, Hello, RunSample, StackSample, Tick
from dflash_watch.model import Incident, IncidentStage, Severity, Snapshot, Verdict
from dflash_watch.retention import OPEN_MARK

LONG_S = 60.0
HELLO = Hello(protocol=1, agent_version="1", python="3.11", hostname="h", agent_pid=1, uid=0)


def frame(seq: int, manifest: dict | None = None) -> Frame:
    run = RunSample(state="found", how="run-dir", manifest=manifest)
    return Frame(seq=seq, t=float(seq), boot_s=float(seq), run=run)


def snapshot(key: str = "k") -> Snapshot:
    incident = Incident(
        key=key, failure="f", subject="run", verdict=Verdict.STALLED, severity=Severity.CRITICAL,
        stage=IncidentStage.CONFIRMED, opened_t=1.0, ready=True,
    )  # fmt: skip
    return Snapshot(
        t=1.0, run="r", verdict=Verdict.STALLED, since_t=0.0, failure="f", summary="s",
        incident=incident,
    )  # fmt: skip


def no_file(_sample: StackSample) -> Path:
    raise AssertionError("nobody asked for stacks")


def test_a_window_starts_with_what_a_replay_needs_though_it_is_long_past():
    recent = RecentRecords(capacity=3)
    first = [HELLO, frame(1, manifest={"run_id": "x"})]
    later = [frame(seq) for seq in range(2, 10)]
    for record in first + later:
        recent.add(record)
    assert unpack(recent.packed()) == first + later[-3:]


def test_nothing_stands_in_a_window_twice():
    recent = RecentRecords(capacity=10)
    records = [HELLO, frame(1, manifest={}), frame(2), Tick(t=3.0)]
    for record in records:
        recent.add(record)
    assert unpack(recent.packed()) == records


def test_a_new_greeting_replaces_the_old_one():
    recent = RecentRecords(capacity=2)
    second = msgspec.structs.replace(HELLO, agent_pid=2)
    for record in [HELLO, frame(1), second, frame(2), frame(3)]:
        recent.add(record)
    assert unpack(recent.packed()) == [second, frame(2), frame(3)]


def test_an_incident_is_written_once_with_the_records_up_to_then():
    written = []

    def write(asked, records) -> Path:
        written.append((asked.incident.key, [record.seq for record in records]))
        return Path("/kept") / asked.incident.key

    shelf = Shelf(write, no_file)
    shelf.see(frame(1))
    assert not shelf.is_settled("k")
    shelf.keep(snapshot())
    shelf.see(frame(2))
    shelf.keep(snapshot())
    shelf.close(LONG_S)
    assert written == [("k", [1])]
    assert shelf.path("k") == "/kept/k"
    assert shelf.is_settled("k")


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), WatchError("refused")])
def test_a_folder_that_cannot_be_written_settles_the_incident_without_a_path(error, caplog):
    def write(_asked, _records) -> Path:
        raise error

    shelf = Shelf(write, no_file)
    shelf.keep(snapshot("a"))
    shelf.keep(snapshot("b"))
    shelf.close(LONG_S)
    assert [shelf.is_settled(key) for key in "ab"] == [True, True]
    assert shelf.path("a") is None
    assert "incident a not kept" in caplog.text


def test_a_disk_that_hangs_does_not_hold_up_the_loop():
    gate = threading.Event()

    def write(asked, _records) -> Path:
        gate.wait(LONG_S)
        return Path("/kept") / asked.incident.key

    shelf = Shelf(write, no_file)
    shelf.keep(snapshot())
    shelf.see(frame(1))
    shelf.close(0.01)
    assert not shelf.is_settled("k")
    gate.set()


def test_only_stacks_that_a_person_asked_for_become_a_file_and_its_path_is_told():
    written = []

    def write_asked(sample: StackSample) -> Path:
        written.append(sample.label)
        return Path("/kept/asked.txt")

    shelf = Shelf(lambda _asked, _records: None, write_asked)
    assert shelf.asked_path() is None
    for label in ("census", "asked", "A"):
        shelf.see(StackSample(t=1.0, pid=4, label=label, tool="py-spy"))
    shelf.close(LONG_S)
    assert written == ["asked"]
    assert shelf.asked_path() == "/kept/asked.txt"


def test_stacks_that_cannot_be_kept_say_why(caplog):
    def write_asked(_sample: StackSample) -> Path:
        raise OSError(28, "No space left on device")

    shelf = Shelf(lambda _asked, _records: None, write_asked)
    shelf.see(StackSample(t=1.0, pid=4, label="asked", tool="py-spy"))
    shelf.close(LONG_S)
    assert shelf.asked_path() == "not kept: No space left on device"
    assert "No space left" in caplog.text


def test_the_folder_of_an_open_incident_is_marked_until_it_is_resolved_or_watching_ends(tmp_path):
    def write(asked, _records) -> Path:
        folder = tmp_path / asked.incident.key
        folder.mkdir()
        return folder

    def is_marked(key: str) -> bool:
        return (tmp_path / key / OPEN_MARK).exists()

    def soon(condition) -> None:
        end = time.monotonic() + LONG_S
        while not condition():
            assert time.monotonic() < end
            time.sleep(0.01)

    shelf = Shelf(write, no_file)
    shelf.keep(snapshot("k"))
    soon(lambda: shelf.is_settled("k"))
    shelf.keep(snapshot("k"))
    soon(lambda: is_marked("k"))
    assert (tmp_path / "k" / OPEN_MARK).stat().st_mode & 0o777 == 0o600
    shelf.keep(snapshot("other"))
    soon(lambda: shelf.is_settled("other"))
    shelf.keep(snapshot("other"))
    soon(lambda: is_marked("other") and not is_marked("k"))
    over = snapshot("other")
    resolved = msgspec.structs.replace(over.incident, stage=IncidentStage.RESOLVED)
    shelf.keep(msgspec.structs.replace(over, incident=resolved))
    soon(lambda: not is_marked("other"))
    shelf.keep(over)
    soon(lambda: is_marked("other"))
    shelf.close(LONG_S)
    assert not is_marked("other")
