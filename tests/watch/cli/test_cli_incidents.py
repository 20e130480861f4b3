"""`incidents`: the list and one report, from folders on disk."""

import json
import os

import msgspec
import pytest
from dflash_watch.bundle import IncidentWriter
from dflash_watch.cli import main
from dflash_watch.commands.incidents import journal_row
from dflash_watch.commands.replay import find_capture
from dflash_watch.model import RunOptions
from dflash_watch.playbooks import load_playbooks
from watch.render.made import T0, deadlocked, records

OLDER, NEWER = "20261129T141210Z-pipeline-deadlock", "20261130T080000Z-worker-died"


@pytest.fixture
def kept(tmp_path):
    for name, subject in ((OLDER, "drafter-1"), (NEWER, "target-3")):
        folder = tmp_path / name
        folder.mkdir()
        told = {"verdict": "stalled", "subject": subject, "run": "demo", "failure": name[17:]}
        (folder / "verdict.json").write_text(json.dumps(told))
        (folder / "report.md").write_text(f"# {subject}\n\nwhat happened\n")
        (folder / "stacks-1.txt").write_text("")
    (tmp_path / ".tmp-half-written").mkdir()
    (tmp_path / "journal.jsonl").write_text("{}\n")
    return tmp_path


def run(kept, *words: str) -> int:
    return main(["incidents", *words, "--incidents", str(kept)])


def test_the_list_has_a_line_each_newest_first(kept, capfd):
    assert run(kept) == 0
    first, second = capfd.readouterr().out.splitlines()
    assert first.split() == ["20261130T080000Z", "stalled", "worker-died", "target-3", "demo"]
    assert second.startswith("20261129T141210Z")


def test_a_run_called_as_its_place_is_named_once():
    told = {"t": 1.0, "host": "box", "run": "box", "action": "hook", "outcome": "exit 0"}
    assert journal_row(told).startswith("1970-01-01 00:00:01  box                  hook: exit 0")
    assert "box a " in journal_row(told | {"run": "a"})


def test_the_list_as_json_has_the_path_and_the_verdict(kept, capfd):
    assert run(kept, "--json") == 0
    told = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [one["path"] for one in told] == [str(kept / NEWER), str(kept / OLDER)]
    assert told[0]["subject"] == "target-3"


@pytest.mark.parametrize("word", ["last", NEWER, "worker"])
def test_one_is_shown_by_name_by_part_of_it_or_as_the_last(kept, capfd, word):
    assert run(kept, word) == 0
    out = capfd.readouterr().out
    assert out.startswith("# target-3\n\nwhat happened\n")
    assert "stacks-1.txt, verdict.json" in out


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("2026", "'2026' fits 2 incidents"),
        ("20261129T141210Z-pipeline-deadlok", f"did you mean {OLDER}?"),
        ("nan", f"newest: {NEWER}"),
    ],
)
def test_a_name_that_fits_none_or_many_is_one_line_and_a_usage_error(kept, capfd, word, told):
    assert run(kept, word) == 64
    shown = capfd.readouterr()
    assert shown.out == ""
    assert told in shown.err
    assert len(shown.err.splitlines()) == 1


@pytest.fixture
def whole(tmp_path):
    seen = deadlocked()
    writer = IncidentWriter(tmp_path, RunOptions(), load_playbooks())
    return writer.write(seen, records()), writer.write(later(seen), records())


def later(seen):
    incident = msgspec.structs.replace(seen.incident, opened_t=T0 + 100)
    return msgspec.structs.replace(seen, incident=incident)


@pytest.mark.parametrize("word", ["last", "name", "path"])
def test_an_incident_is_replayed_by_the_words_by_which_it_is_shown(whole, capfd, word):
    meant = {"last": "last", "name": whole[1].name, "path": str(whole[1])}[word]
    assert find_capture(meant, str(whole[1].parent)) == whole[1]
    assert run(whole[1].parent, "last") == 0
    assert main(["replay", meant, "--json", "--incidents", str(whole[1].parent)]) == 0
    assert '"verdict":' in capfd.readouterr().out


def test_the_last_of_no_incidents_is_one_line(tmp_path, capfd):
    assert main(["replay", "last", "--json", "--incidents", str(tmp_path)]) == 64
    assert f"no incidents in {tmp_path}" in capfd.readouterr().err


def test_a_report_names_its_own_folder_in_its_steps(tmp_path):
    seen = deadlocked(next=("read stacks.diff.txt in the incident: who stands?",))
    path = IncidentWriter(tmp_path, RunOptions(), load_playbooks()).write(seen, records())
    assert f"1. read stacks.diff.txt in {path}: who stands?" in (path / "report.md").read_text()


def test_a_folder_without_incidents_says_so(tmp_path, capfd):
    (tmp_path / "nothing").mkdir()
    assert run(tmp_path / "nothing") == 0
    assert capfd.readouterr().out == f"no incidents in {tmp_path / 'nothing'}\n"


def test_an_incident_whose_verdict_is_torn_is_still_listed(kept, capfd):
    (kept / NEWER / "verdict.json").write_text('{"verdict": "sta')
    assert run(kept) == 0
    assert "unreadable" in capfd.readouterr().out.splitlines()[0]


@pytest.mark.parametrize("torn", ['{"verdict": null, "subject": [1], "run": {}}', "[]", "\\x"])
def test_a_damaged_verdict_is_a_line_in_the_list_and_never_an_internal_error(kept, capfd, torn):
    (kept / NEWER / "verdict.json").write_text(torn)
    assert run(kept) == 0
    assert "unreadable" in capfd.readouterr().out
    if torn.startswith("\\"):
        assert run(kept, "last", "--json") == 64
        assert "damaged" in capfd.readouterr().err


ENTRIES = [
    {"t": 1795974710.8, "host": "box · ct 200", "action": "stacks", "outcome": "asked", "pid": 7},
    {"t": "?", "host": "box", "run": "qwen", "action": "hook", "outcome": "exit 1\x1b[31m",
     "output": "a\nb" + "x" * 500},
]  # fmt: skip


def test_the_journal_is_read_oldest_first_with_one_line_an_entry(kept, capfd):
    (kept / "journal.1.jsonl").write_text(json.dumps(ENTRIES[0]) + "\n")
    (kept / "journal.jsonl").write_text("torn\n" + json.dumps(ENTRIES[1]) + "\n")
    assert run(kept, "--journal") == 0
    first, second = capfd.readouterr().out.splitlines()
    assert first == "2026-11-29 17:51:50  box · ct 200         stacks: asked  pid=7"
    assert second.startswith("?  box qwen             hook: exit 1  output=a bxxx")
    assert len(second) < 200
    assert "\x1b" not in second


def test_the_journal_as_json_is_the_entries_themselves(kept, capfd):
    (kept / "journal.jsonl").write_text("".join(json.dumps(one) + "\n" for one in ENTRIES))
    assert run(kept, "--journal", "--json") == 0
    assert [json.loads(line) for line in capfd.readouterr().out.splitlines()] == ENTRIES


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_a_journal_that_is_no_file_is_one_line_and_not_waited_for(tmp_path, capfd, make):
    make(tmp_path / "journal.jsonl")
    assert run(tmp_path, "--journal") == 64
    (line,) = capfd.readouterr().err.splitlines()
    assert "journal.jsonl: not a regular file; is it yours" in line


def test_a_journal_that_is_not_there_is_said(tmp_path, capfd):
    assert run(tmp_path, "--journal") == 0
    assert capfd.readouterr().out.startswith("nothing noted in ")
    assert run(tmp_path, "last", "--journal") == 64
    assert "leave out SHOW" in capfd.readouterr().err
