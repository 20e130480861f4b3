"""run.json: whole, clear about what is wrong with it, and without secrets."""

import json
import threading

import pytest
from dflash_events.identity import read_identity
from dflash_events.manifest import read_manifest, source_hashes, write_manifest
from dflash_events.schema import RunDirError

GOOD = {"schema": 1, "run_id": "x", "process": read_identity().as_dict(), "workers": []}


def test_a_newer_schema_is_read_and_said(tmp_path):
    write_manifest(tmp_path, {**GOOD, "schema": 4, "unheard_of": 1})
    manifest = read_manifest(tmp_path)
    assert manifest.data["unheard_of"] == 1
    assert manifest.notes == ["run.json has schema 4; this reader knows 1 and takes what it knows"]


def test_the_path_of_run_json_itself_is_as_good_as_its_directory(tmp_path):
    write_manifest(tmp_path, GOOD)
    assert read_manifest(tmp_path / "run.json") == read_manifest(tmp_path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "got list, expected an object"),
        ("{}", "schema is None"),
        ('{"schema": 1}', "process: got NoneType"),
        ('{"schema": 1, "process": {"pid": "7"}}', "pid '7' and start_ticks None"),
    ],
)
def test_what_is_no_manifest_is_refused_in_one_clear_line(tmp_path, text, says):
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(RunDirError) as caught:
        read_manifest(tmp_path)
    assert says in str(caught.value)
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_directory_that_is_none_says_what_to_do(tmp_path):
    with pytest.raises(RunDirError, match=r"not there; give the directory that holds run.json"):
        read_manifest(tmp_path / "nowhere")


def test_a_reader_never_sees_half_a_manifest(tmp_path):
    write_manifest(tmp_path, GOOD)
    stop = threading.Event()

    def rewrite():
        number = 0
        while not stop.is_set():
            number += 1
            write_manifest(tmp_path, {**GOOD, "config": {"n": number, "x": "y" * 20_000}})

    thread = threading.Thread(target=rewrite)
    thread.start()
    for _ in range(300):
        read_manifest(tmp_path)
    stop.set()
    thread.join()
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


def test_values_json_does_not_know_are_named_or_null(tmp_path):
    config = {"device": object(), "clip": float("inf"), "data": tmp_path / "a"}
    write_manifest(tmp_path, {**GOOD, "config": config})
    assert json.loads((tmp_path / "run.json").read_text())["config"] == {
        "device": "<object>",
        "clip": None,
        "data": str(tmp_path / "a"),
    }


def test_source_hashes_leave_out_what_cannot_be_read(tmp_path):
    (tmp_path / "a.py").write_bytes(b"x = 1\n")
    hashes = source_hashes([tmp_path / "a.py", tmp_path / "gone.py"])
    assert list(hashes) == [str(tmp_path / "a.py")]
    assert len(hashes[str(tmp_path / "a.py")]) == 64
