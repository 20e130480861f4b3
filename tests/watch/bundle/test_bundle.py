"""The incident folder is whole or not there, private, free of secrets, and bounded."""

from __future__ import annotations

import gzip
import json
import resource
import stat
from pathlib import Path

import msgspec
import pytest
from dflash_watch.bundle import IncidentWriter, fit
from dflash_watch.capture import open_capture
from dflash_watch.commands.incidents import find_incidents
from dflash_watch.engine import Engine
from dflash_watch.frame import Frame, Record, StackSample
from dflash_watch.model import RunOptions, Snapshot
from dflash_watch.playbooks import load_playbooks
from dflash_watch.retention import prune
from watch.render.made import SECRET, T0, deadlocked, frame, records, stacks

PLAYBOOKS = load_playbooks()
FILES = [
    "gpus.csv", "host.txt", "log-tail.txt", "processes.txt", "report.md",
    "stacks-1.json", "stacks-1.txt", "stacks-2.json", "stacks-2.txt", "stacks-3.json",
    "stacks-3.txt", "stacks.diff.txt", "verdict.json", "window.jsonl.gz",
]  # fmt: skip


def writer(folder: Path, **more: int) -> IncidentWriter:
    return IncidentWriter(folder, RunOptions(where="10.1.2.6 · ct 200"), PLAYBOOKS, **more)


def written(folder: Path, snapshot: Snapshot | None = None) -> Path:
    path = writer(folder).write(snapshot or deadlocked(), records())
    assert path is not None
    return path


def later(seconds: float) -> Snapshot:
    snapshot = deadlocked(T0 + 20 + seconds)
    assert snapshot.incident is not None
    incident = msgspec.structs.replace(snapshot.incident, opened_t=T0 + seconds)
    return msgspec.structs.replace(snapshot, incident=incident)


def test_the_folder_has_the_files_of_the_interface_and_its_name(tmp_path: Path) -> None:
    path = written(tmp_path / "incidents")
    assert path.name == "20260921T141320Z-pipeline-deadlock"
    assert sorted(one.name for one in path.iterdir()) == FILES
    assert [one.name for one in (tmp_path / "incidents").iterdir()] == [path.name]


def test_only_the_owner_can_read_it(tmp_path: Path) -> None:
    path = written(tmp_path / "incidents")
    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert {stat.S_IMODE(one.stat().st_mode) for one in path.iterdir()} == {0o600}


def test_no_secret_is_in_any_file(tmp_path: Path) -> None:
    snapshot = deadlocked(summary=f"died with HF_TOKEN={SECRET}")
    for one in written(tmp_path, snapshot).iterdir():
        content = one.read_bytes()
        text = gzip.decompress(content) if one.suffix == ".gz" else content
        assert SECRET.encode() not in text, one.name


def test_a_name_that_another_watchdog_takes_meanwhile_costs_no_incident(tmp_path: Path) -> None:
    slow = writer(tmp_path)
    fill, taken = slow._fill, tmp_path / "20260921T141320Z-pipeline-deadlock"

    def overtaken(*args: object) -> None:
        fill(*args)  # type: ignore[arg-type] - as they came
        if not taken.exists():
            taken.mkdir()
            (taken / "verdict.json").write_text("{}")

    slow._fill = overtaken  # type: ignore[method-assign] - a place to be overtaken at
    path = slow.write(deadlocked(), records())
    assert sorted(one.name for one in tmp_path.iterdir()) == [taken.name, f"{taken.name}-2"]
    assert path == tmp_path / f"{taken.name}-2"
    assert json.loads((path / "verdict.json").read_text())["incident"] == str(path)


HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202ename"


def hostile_records() -> list[Record]:
    """The deadlocked run, with escape codes in every name that a run gives itself."""
    changed: list[Record] = []
    for record in records():
        if isinstance(record, StackSample):
            threads = [msgspec.structs.replace(one, name=HOSTILE) for one in record.threads]
            record = msgspec.structs.replace(record, threads=tuple(threads), raw=HOSTILE)  # noqa: PLW2901 - the same one, renamed
        elif isinstance(record, Frame):
            processes = [
                msgspec.structs.replace(one, comm=HOSTILE, cmd=HOSTILE)
                for one in record.processes or ()
            ]
            logs = [msgspec.structs.replace(one, path=HOSTILE) for one in record.logs or ()]
            record = msgspec.structs.replace(record, processes=tuple(processes), logs=tuple(logs))  # noqa: PLW2901
        changed.append(record)
    return changed


def test_no_escape_code_of_the_run_is_in_any_file(tmp_path: Path) -> None:
    snapshot = deadlocked(subject=HOSTILE, run=HOSTILE, explains=(HOSTILE,), summary=HOSTILE)
    path = writer(tmp_path).write(snapshot, hostile_records())
    assert path is not None
    assert "name" in (path / "stacks-1.txt").read_text()
    for one in path.iterdir():
        if one.suffix != ".gz":
            left = one.read_text(encoding="utf-8").replace("\n", "").replace("\u2009", " ")
            assert left.isprintable(), one.name


def test_the_window_is_replayed_by_the_engine(tmp_path: Path) -> None:
    header, window = open_capture(written(tmp_path))
    engine = Engine(header.options, PLAYBOOKS)
    snapshots = [engine.advance(record) for record in window]
    assert len(snapshots) == len(records())
    assert snapshots[-1].board.pid == 4242


def test_the_verdict_is_the_public_json_with_the_final_path(tmp_path: Path) -> None:
    path = written(tmp_path)
    told = json.loads((path / "verdict.json").read_text())
    assert (told["verdict"], told["failure"]) == ("stalled", "pipeline-deadlock")
    assert told["incident"] == str(path)


def test_only_the_samples_of_the_incident_are_kept_in_order(tmp_path: Path) -> None:
    path = written(tmp_path)
    labels = [json.loads((path / f"stacks-{n}.json").read_text())["label"] for n in (1, 2, 3)]
    assert labels == ["A", "B", "C"]
    assert "drafter-1: acquire" in (path / "stacks.diff.txt").read_text()


def test_without_stacks_the_report_says_why(tmp_path: Path) -> None:
    snapshot = deadlocked()
    assert snapshot.incident is not None
    incident = msgspec.structs.replace(
        snapshot.incident, stack_labels=(), stacks_missing="the process is not there any more"
    )
    path = written(tmp_path, msgspec.structs.replace(snapshot, incident=incident))
    assert not list(path.glob("stacks*"))
    assert "There are none: the process is not there any more" in (path / "report.md").read_text()


def test_the_traceback_of_the_trainers_own_event_stands_in_for_stacks(tmp_path: Path) -> None:
    event = {"kind": "worker-failed", "worker": "target-1", "traceback": f"E: {SECRET}"}
    failed = msgspec.structs.replace(frame(20), events=(event,))
    snapshot = deadlocked()
    assert snapshot.incident is not None
    incident = msgspec.structs.replace(snapshot.incident, stack_labels=())
    path = writer(tmp_path).write(
        msgspec.structs.replace(snapshot, incident=incident), [*records(), failed]
    )
    assert path is not None
    assert (path / "stacks-1.txt").read_text() == (
        "target-1, from its worker-failed event:\n\nE: ***\n"
    )
    assert "## Traceback of target-1\n\n```\nE: ***\n```" in (path / "report.md").read_text()


def test_a_failed_write_leaves_nothing_behind(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1500, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            writer(tmp_path).write(deadlocked(), records())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []


def test_a_second_incident_of_one_second_has_a_name_of_its_own(tmp_path: Path) -> None:
    one = writer(tmp_path)
    names = [
        path.name for path in (one.write(deadlocked(), []), one.write(deadlocked(), [])) if path
    ]
    assert names == ["20260921T141320Z-pipeline-deadlock", "20260921T141320Z-pipeline-deadlock-2"]


def test_more_folders_than_the_rate_allows_are_left_out(tmp_path: Path) -> None:
    one = writer(tmp_path, per_hour=2)
    made = [one.write(later(60.0 * n), []) is not None for n in range(4)]
    assert made == [True, True, False, False]
    assert one.write(later(4000.0), []) is not None


def test_the_oldest_folders_go_when_the_budget_is_spent_but_some_stay(tmp_path: Path) -> None:
    one = writer(tmp_path, budget_bytes=1)
    paths = [one.write(later(60.0 * n), records()) for n in range(5)]
    (tmp_path / "notes.txt").write_text("a person's own file")
    prune(tmp_path, 1)
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == sorted([*(path.name for path in paths[2:] if path), "notes.txt"])


def test_a_window_that_is_too_long_loses_its_oldest_frames_but_no_stacks() -> None:
    many = [*records(400), stacks("A", T0 + 500)]
    kept = fit(many, 100_000)
    assert len(kept) < len(many)
    assert kept[0] == many[0]
    assert kept[-1] == many[-1]
    assert [r for r in kept if isinstance(r, StackSample)] == [
        r for r in many if isinstance(r, StackSample)
    ]


def test_a_snapshot_without_an_incident_writes_nothing(tmp_path: Path) -> None:
    assert writer(tmp_path).write(deadlocked(incident=None), records()) is None
    assert list(tmp_path.iterdir()) == []


def test_stacks_that_a_person_asked_for_are_a_readable_file_that_no_other_replaces(
    tmp_path: Path,
) -> None:
    sample = stacks("asked", T0)
    first, second = (writer(tmp_path).write_asked(sample) for _ in range(2))
    assert first != second
    assert first.parent == second.parent == tmp_path
    assert "waits for a lock" in first.read_text()
    assert first.stat().st_mode & 0o077 == 0
    assert find_incidents(tmp_path) == []
