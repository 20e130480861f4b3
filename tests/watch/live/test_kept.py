"""What one watcher leaves to the next, as a file."""

import json
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from dflash_watch.clock import SystemClock
from dflash_watch.commands.context import state_dir
from dflash_watch.commands.kept import Kept, KeptKeeper, kept_path, read_kept
from dflash_watch.commands.memory import Memory
from dflash_watch.commands.request import Request
from dflash_watch.commands.stored import MOST_FILES, forget_oldest, read_stored, write_stored
from dflash_watch.model import Incident, IncidentStage, RunOptions, Severity, Verdict
from dflash_watch.place import Place, TargetChoice
from dflash_watch.remembered import Remembered

ROOT = Path(__file__).resolve().parents[3]
LONG_S = 60.0


def incident(key: str = "gil-held/run@5") -> Incident:
    return Incident(
        key=key, failure="gil-held", subject="run", verdict=Verdict.STALLED,
        severity=Severity.CRITICAL, stage=IncidentStage.CONFIRMED, opened_t=5.0, ready=True,
    )  # fmt: skip


def remembered(t: float = 9.0, **changes) -> Remembered:
    told = {"pid": 7, "start_ticks": 70, "run_id": None, "verdict": Verdict.STALLED, "since_t": 5.0}
    return Remembered(t=t, **{**told, "incident": incident(), **changes})


def test_what_was_left_is_read_back_and_is_for_its_owner_only(tmp_path):
    path = tmp_path / "watches" / "a.json"
    keeper = KeptKeeper(path, SystemClock())
    keeper.note(remembered(), {"gil-held/run@5": "/i/x"}, {"gil-held/run@5": 8.0})
    keeper.close(LONG_S)
    kept = read_kept(path)
    assert kept.remembered == remembered()
    assert (kept.paths, kept.acknowledged) == (
        {"gil-held/run@5": "/i/x"}, {"gil-held/run@5": 8.0}
    )  # fmt: skip
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_only_what_belongs_to_the_incidents_at_hand_is_kept(tmp_path):
    keeper = KeptKeeper(tmp_path / "a.json", SystemClock())
    many = {f"old/run@{number}": "/i" for number in range(1000)}
    keeper.note(remembered(), many, dict.fromkeys(many, 1.0))
    keeper.close(LONG_S)
    assert read_kept(tmp_path / "a.json") == Kept(remembered=remembered())


class Ticking:
    now_s = 100.0

    def monotonic_s(self) -> float:
        return self.now_s


def test_news_is_saved_at_once_and_the_passing_of_time_once_a_second(tmp_path):
    clock = Ticking()
    keeper = KeptKeeper(tmp_path / "a.json", clock)

    def saved(**changes) -> Kept:
        keeper.note(remembered(**changes), {}, {})
        end_s = time.monotonic() + LONG_S
        while keeper._outlet._waiting and time.monotonic() < end_s:
            time.sleep(0.01)
        return keeper._saved_s

    assert saved(t=1.0) == 100.0
    clock.now_s = 100.5
    assert saved(t=2.0) == 100.0
    assert saved(t=2.0, verdict=Verdict.CRASHED) == 100.5
    clock.now_s = 101.6
    assert saved(t=3.0, verdict=Verdict.CRASHED) == 101.6
    keeper.close(LONG_S)
    assert read_kept(tmp_path / "a.json").remembered.t == 3.0


def test_a_damaged_file_is_said_once_set_aside_and_begun_anew(tmp_path, caplog):
    path = tmp_path / "a.json"
    for text in ("", '{"schema": 1, "remembered": {"pid":', "[]", '{"remembered": 5}', "\0\xff"):
        caplog.clear()
        path.write_text(text)
        assert read_kept(path) == Kept()
        assert caplog.text.count("is damaged: kept as a.damaged, begun anew") == 1
        assert not path.exists()
        assert (tmp_path / "a.damaged").read_text() == text
        assert read_kept(path) == Kept()
        assert caplog.text.count("damaged: kept") == 1


def test_what_a_later_version_left_is_neither_understood_nor_overwritten(tmp_path):
    path = tmp_path / "a.json"
    newer = json.dumps({"schema": 2, "remembered": {"new": 1}})
    path.write_text(newer)
    assert read_kept(path) == Kept()
    keeper = KeptKeeper(path, SystemClock())
    keeper.note(remembered(), {}, {})
    keeper.close(LONG_S)
    assert path.read_text() == newer


def test_a_disk_that_refuses_is_said_and_stops_nothing(tmp_path, caplog):
    (tmp_path / "watches").write_text("a file where the folder should be")
    keeper = KeptKeeper(tmp_path / "watches" / "a.json", SystemClock())
    keeper.note(remembered(), {}, {})
    keeper.close(LONG_S)
    assert caplog.text.count("a restart will not know") == 1


def test_command_lines_and_folders_of_incidents_have_files_of_their_own(tmp_path):
    made = {
        kept_path(tmp_path, place, target, folder)
        for place in (Place(), Place(host="box"))
        for target in (TargetChoice(), TargetChoice(pid=7))
        for folder in (Path("/a"), Path("/b"))
    }
    assert len(made) == 8


def test_files_that_were_not_written_for_longest_are_forgotten(tmp_path):
    for number in range(9):
        (tmp_path / f"{number}.json").write_text("{}")
        os.utime(tmp_path / f"{number}.json", (number, number))
    forget_oldest(tmp_path, most=3)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["6.json", "7.json", "8.json"]
    forget_oldest(tmp_path / "nowhere")


WRITER = """
import sys
from pathlib import Path
from dflash_watch.commands.stored import write_stored
print("writing", flush=True)
number = 0
while True:
    number += 1
    write_stored(Path(sys.argv[1]), {"number": number, "pad": "x" * 200_000})
"""


@pytest.mark.parametrize("after_s", [0.0, 0.03, 0.11])
def test_a_writer_that_is_killed_at_any_moment_leaves_a_whole_file(tmp_path, after_s):
    path, folders = tmp_path / "a.json", [str(ROOT / name) for name in ("dflash", "watchdog")]
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(folders)},
    )  # fmt: skip
    process.stdout.readline()
    end_s = time.monotonic() + LONG_S
    while not path.exists():
        assert time.monotonic() < end_s
        time.sleep(0.005)
    time.sleep(after_s)
    process.kill()
    process.communicate()
    assert read_stored(path)["number"] >= 1
    write_stored(path, {"number": 0})
    assert read_stored(path) == {"number": 0}


@pytest.mark.parametrize("is_whole", [True, False])
def test_a_folder_that_was_whole_when_its_watcher_was_killed_is_not_written_again(
    tmp_path, monkeypatch, is_whole
):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    request = Request(place=Place(), target=TargetChoice(pid=7), options=RunOptions())
    folder = tmp_path / "incidents"
    path = folder / "19700101T000005Z-gil-held"
    path.mkdir(parents=True)
    if is_whole:
        (path / "verdict.json").write_text("{}")
    keeper = KeptKeeper(
        kept_path(state_dir(), request.place, request.target, folder), SystemClock()
    )
    keeper.note(remembered(), {}, {})
    keeper.close(LONG_S)
    memory = Memory(request, folder, SystemClock(), is_kept=True)
    assert memory.kept.remembered == remembered()
    assert memory.settled() == ({"gil-held/run@5": str(path)} if is_whole else {})


@pytest.mark.parametrize(("is_kept", "left"), [(True, MOST_FILES), (False, MOST_FILES + 3)])
def test_a_dry_run_forgets_nothing_of_others(tmp_path, monkeypatch, is_kept, left):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    limits = state_dir() / "limits"
    limits.mkdir(parents=True)
    for number in range(MOST_FILES + 3):
        (limits / f"{number}.json").touch()
    request = Request(place=Place(), target=TargetChoice(pid=7), options=RunOptions())
    Memory(request, tmp_path / "incidents", SystemClock(), is_kept=is_kept)
    assert len(list(limits.iterdir())) == left


def test_a_disk_that_was_full_for_a_while_costs_that_while_only(tmp_path, caplog):
    folder = tmp_path / "watches"
    folder.write_text("a file where the folder should be")
    keeper = KeptKeeper(folder / "a.json", SystemClock())
    keeper.note(remembered(), {}, {"k": 1.0})
    end_s = time.monotonic() + LONG_S
    while "a restart will not know" not in caplog.text:
        assert time.monotonic() < end_s, "never said"
        time.sleep(0.01)
    folder.unlink()
    keeper.note(remembered(), {remembered().incident.key: "/there"}, {})
    keeper.close(LONG_S)
    assert read_kept(folder / "a.json").remembered == remembered()
    assert caplog.text.count("a restart will not know") == 1
