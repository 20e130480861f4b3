"""Recordings survive kills and restarts, and a file that is none is refused in one line."""

from __future__ import annotations

import gzip
import resource
import stat
from pathlib import Path

import pytest
from dflash_watch.capture import CaptureWriter, open_capture
from dflash_watch.errors import EXIT_USAGE, CaptureError, UsageError
from dflash_watch.frame import Frame, LinkChange, LogSample, Record, RunSample, Tick
from dflash_watch.model import RunOptions
from hypothesis import given
from hypothesis import strategies as st

OPTIONS = RunOptions(name="demo", roles={"target": (0, 1)}, expect_tokens_per_s=14200.0)


def frame(seq: int) -> Frame:
    logs = (LogSample(path="train.log", via="fd 1", text=f"step {seq}\n"),)
    return Frame(
        seq=seq, t=float(seq), boot_s=float(seq), run=RunSample(state="found", how="pid"), logs=logs
    )


RECORDS: list[Record] = [LinkChange(t=1.0, state="up"), frame(1), Tick(t=2.0), frame(2), frame(3)]


def record(path: Path, records: list[Record] = RECORDS, *, close: bool = True) -> Path:
    writer = CaptureWriter(path, OPTIONS, 0.5, "1.0")
    for one in records:
        writer.write(one)
    if close:
        writer.close()
    return path


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_what_was_recorded_is_read_back(tmp_path: Path, name: str) -> None:
    header, records = open_capture(record(tmp_path / name))
    assert header.options == OPTIONS
    assert (header.t, header.version) == (0.5, "1.0")
    assert list(records) == RECORDS
    assert records.notes == []


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_a_killed_recorder_loses_nothing_it_has_taken(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    writer = CaptureWriter(path, OPTIONS, 0.5)
    for one in RECORDS:
        writer.write(one)
    kept = path.read_bytes()  # as a kill at this moment would leave it
    writer.close()
    path.write_bytes(kept)
    assert list(open_capture(path)[1]) == RECORDS


def test_only_its_owner_can_read_a_recording(tmp_path: Path) -> None:
    assert stat.S_IMODE(record(tmp_path / "a.jsonl").stat().st_mode) == 0o600


def test_a_torn_last_line_is_left_out_with_a_note(tmp_path: Path) -> None:
    path = record(tmp_path / "a.jsonl")
    path.write_bytes(path.read_bytes()[:-9])
    records = open_capture(path)[1]
    assert list(records) == RECORDS[:-1]
    assert [note for note in records.notes if "line 6" in note and "cut" in note]


def test_a_restarted_recorder_goes_on_behind_a_torn_line(tmp_path: Path) -> None:
    path = record(tmp_path / "a.jsonl")
    path.write_bytes(path.read_bytes()[:-9])
    record(path, [Tick(t=9.0)])
    records = open_capture(path)[1]
    assert list(records) == [*RECORDS[:-1], Tick(t=9.0)]
    assert len(records.notes) == 1


def test_a_cut_compressed_recording_is_played_up_to_the_cut(tmp_path: Path) -> None:
    many = [frame(n) for n in range(200)]
    path = record(tmp_path / "a.jsonl.gz", many)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    records = open_capture(path)[1]
    played = list(records)
    assert 0 < len(played) < 200
    assert played == many[: len(played)]
    assert "cut" in records.notes[0]


def test_nothing_is_appended_to_a_compressed_recording(tmp_path: Path) -> None:
    path = record(tmp_path / "a.jsonl.gz")
    with pytest.raises(UsageError, match="exists already"):
        CaptureWriter(path, OPTIONS, 0.0)
    assert list(open_capture(path)[1]) == RECORDS


def test_damage_in_the_middle_is_named_by_its_line(tmp_path: Path) -> None:
    path = record(tmp_path / "a.jsonl")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], b"rubbish\n", *lines[2:]]))
    with pytest.raises(CaptureError, match="line 3"):
        list(open_capture(path)[1])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "empty"),
        (b"hello world\n", "is no recording"),
        (b'{"a": 1}\n', "is no recording"),
        (b"\x7fELF\x02\x01\x01" + bytes(500), "is no recording"),
        (b'{"type":"capture","schema":1,"t', "is cut in its header"),
        (b'{"type":"tick","t":1.0}\n', "expected the header"),
        (b"\x1f\x8b\x08\x00rubbish", "cut before its first record"),
    ],
)
def test_a_file_that_is_no_recording_is_refused_in_one_line(
    tmp_path: Path, content: bytes, said: str
) -> None:
    path = tmp_path / "x"
    path.write_bytes(content)
    with pytest.raises(CaptureError, match=said) as refused:
        open_capture(path)
    assert refused.value.exit_code == EXIT_USAGE
    assert "\n" not in str(refused.value)
    assert str(path) in str(refused.value)


def test_a_missing_file_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="No such file"):
        open_capture(tmp_path / "none")


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be written"):
        CaptureWriter(tmp_path / "no" / "a.jsonl", OPTIONS, 0.0)


def test_a_full_disk_is_refused_at_the_start_in_one_line() -> None:
    with pytest.raises(UsageError, match="cannot be written: No space left"):
        CaptureWriter(Path("/dev/full"), OPTIONS, 0.0)


def test_a_packed_file_that_takes_not_a_byte_is_refused_the_same_way(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        with pytest.raises(UsageError, match="cannot be written: File too large"):
            CaptureWriter(tmp_path / "a.gz", OPTIONS, 0.0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_no_character_that_a_terminal_obeys_is_in_the_file_and_none_is_lost(
    tmp_path: Path,
) -> None:
    name = "\x9b2J\x7f\u202e\u00e9"
    path = record(tmp_path / "a.jsonl", [LinkChange(t=1.0, state="lost", reason=name)])
    assert path.read_text().replace("\n", "").isprintable()
    _, records = open_capture(path)
    assert [one.reason for one in records if isinstance(one, LinkChange)] == [name]


def test_a_newer_recording_is_played_with_a_note(tmp_path: Path) -> None:
    path = record(tmp_path / "a.jsonl")
    path.write_bytes(path.read_bytes().replace(b'"schema":1', b'"schema":9', 1))
    records = open_capture(path)[1]
    assert list(records) == RECORDS
    assert "newer version" in records.notes[0]


def test_an_incident_folder_opens_at_its_window(tmp_path: Path) -> None:
    (tmp_path / "window.jsonl.gz").write_bytes(
        gzip.compress(record(tmp_path / "a.jsonl").read_bytes())
    )
    assert list(open_capture(tmp_path)[1]) == RECORDS


def test_a_folder_that_is_no_incident_is_named_as_one(tmp_path: Path) -> None:
    with pytest.raises(CaptureError) as refused:
        open_capture(tmp_path)
    assert f"{tmp_path}: a folder without window.jsonl.gz, so no incident" in str(refused.value)


@given(cut=st.integers(0, 1200))
def test_a_recording_cut_anywhere_is_played_or_refused_but_never_breaks(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    folder = tmp_path_factory.mktemp("cut")
    path = record(folder / "a.jsonl")
    path.write_bytes(path.read_bytes()[:cut])
    try:
        played = list(open_capture(path)[1])
    except CaptureError:
        return
    assert played == RECORDS[: len(played)]


def test_a_small_file_that_unfolds_without_end_is_refused_at_its_first_line(tmp_path) -> None:
    path = tmp_path / "bomb.jsonl.gz"
    with gzip.open(path, "wb", 1) as file:
        for _ in range(100):
            file.write(b"\0" * (1 << 20))
    assert path.stat().st_size < 1 << 20
    with pytest.raises(CaptureError, match="is no recording"):
        open_capture(path)
