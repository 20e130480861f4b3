"""The folder of incidents is kept to a size: the oldest go, on real files, and only ours."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from dflash_watch.retention import KEEP_MARK, OPEN_MARK, mark_closed, mark_open, prune, size_on_disk
from e2e.places.needs import give_up, require_root

MIB = 1 << 20
NAMES = [f"2026112{day}T120000Z-gil-held" for day in range(7)]


def incident(folder: Path, name: str, size: int = MIB) -> Path:
    path = folder / name
    path.mkdir(parents=True)
    (path / "verdict.json").write_text("{}")
    (path / "window.jsonl.gz").write_bytes(os.urandom(size))
    return path


def left(folder: Path) -> list[str]:
    return sorted(one.name for one in folder.iterdir())


def dead_pid() -> int:
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def test_the_oldest_go_until_the_rest_fits_and_each_is_noted(tmp_path):
    for name in NAMES:
        incident(tmp_path, name)
    noted = []
    prune(tmp_path, 5 * MIB, lambda *told, **more: noted.append((*told, more["path"])))
    assert left(tmp_path) == NAMES[3:]
    assert noted == [("incident", "removed", str(tmp_path / name)) for name in reversed(NAMES[:3])]


def test_a_large_one_does_not_take_smaller_older_ones_with_it_for_nothing(tmp_path):
    incident(tmp_path, NAMES[0], 4096)
    incident(tmp_path, NAMES[1], 8 * MIB)
    for name in NAMES[2:5]:
        incident(tmp_path, name)
    prune(tmp_path, 6 * MIB)
    assert left(tmp_path) == [NAMES[0], *NAMES[2:5]]


def test_the_newest_three_stay_whatever_their_size(tmp_path):
    for name in NAMES[:3]:
        incident(tmp_path, name, 2 * MIB)
    assert prune(tmp_path, 1) == []
    assert left(tmp_path) == NAMES[:3]


def test_holes_in_a_file_take_up_nothing(tmp_path):
    for name in NAMES[:5]:
        with (incident(tmp_path, name, 4096) / "log-tail.txt").open("wb") as file:
            file.truncate(10 << 30)
    assert size_on_disk(tmp_path) < MIB
    assert prune(tmp_path, MIB) == []


def test_an_incident_that_a_watcher_has_open_or_a_person_keeps_stays(tmp_path):
    for name in NAMES:
        incident(tmp_path, name)
    mark_open(tmp_path / NAMES[0])
    (tmp_path / NAMES[1] / KEEP_MARK).touch()
    (tmp_path / NAMES[2] / OPEN_MARK).write_text(f"{dead_pid()}\n")
    (tmp_path / NAMES[3] / OPEN_MARK).write_text("what is this")
    prune(tmp_path, MIB)
    assert left(tmp_path) == [*NAMES[:2], *NAMES[4:]]
    mark_closed(tmp_path / NAMES[0])
    mark_closed(tmp_path / NAMES[0])
    prune(tmp_path, MIB)
    assert left(tmp_path) == [NAMES[1], *NAMES[4:]]


def test_what_is_not_ours_is_neither_counted_nor_touched(tmp_path):
    folder = tmp_path / "incidents"
    for name in NAMES[:5]:
        incident(folder, name, 4096)
    elsewhere = incident(tmp_path, "20250101T000000Z-precious", 2 * MIB)
    (folder / "20250101T000000Z-linked").symlink_to(elsewhere)
    (folder / "20250101T000000Z-no-incident").mkdir()
    (folder / "20250101T000000Z-no-incident" / "thesis.tex").write_bytes(os.urandom(2 * MIB))
    (folder / "20250101T000000Z-notes.txt").write_bytes(os.urandom(2 * MIB))
    (folder / "journal.jsonl").write_bytes(os.urandom(2 * MIB))
    before = left(folder)
    assert prune(folder, MIB) == []
    assert left(folder) == before
    assert (elsewhere / "window.jsonl.gz").stat().st_size == 2 * MIB


def test_stacks_that_were_asked_for_are_bounded_too(tmp_path):
    for name in NAMES[3:6]:
        incident(tmp_path, name, 4096)
    asked = ("20260101T000000Z-asked-stacks.txt", "20260101T000000Z-asked-stacks-2.txt")
    for name in asked:
        (tmp_path / name).write_bytes(os.urandom(2 * MIB))
    prune(tmp_path, 3 * MIB)
    assert left(tmp_path) == [asked[0], *NAMES[3:6]]


def test_what_a_killed_watcher_left_unfinished_goes_and_what_a_living_one_writes_stays(tmp_path):
    dead, alive = f".{NAMES[0]}.{dead_pid()}-0.tmp", f".{NAMES[1]}.{os.getpid()}-7.tmp"
    for name in (dead, alive, ".git", f".{NAMES[0]}.old.tmp"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "verdict.json").write_text("{}")
    prune(tmp_path, MIB)
    assert left(tmp_path) == sorted([alive, ".git", f".{NAMES[0]}.old.tmp"])


def test_watchers_that_prune_at_the_same_time_are_content_with_what_the_other_left(tmp_path):
    names = [f"202611{day:02}T120000Z-gil-held" for day in range(1, 31)]
    for name in names:
        incident(tmp_path, name, 64 << 10)
    script = "import sys; from pathlib import Path; from dflash_watch.retention import prune; "
    script += "prune(Path(sys.argv[1]), 500_000)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    both = [
        subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], env=environment)
        for _ in range(2)
    ]
    assert [one.wait(60) for one in both] == [0, 0]
    assert left(tmp_path) == names[-len(left(tmp_path)) :]
    assert 3 <= len(left(tmp_path)) <= 7


FULL = """
import logging, subprocess, sys
from pathlib import Path
sys.path[:0] = sys.argv[2:]
folder = Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], check=True)
from dflash_watch.bundle import IncidentWriter
from dflash_watch.clock import SystemClock
from dflash_watch.commands.keeping import Shelf
from dflash_watch.journal import Journal, JournalFile
from dflash_watch.retention import prune
from watch.bundle.test_bundle import PLAYBOOKS, later, records, RunOptions
logging.basicConfig(format="%(message)s", stream=sys.stdout)
file = JournalFile(folder / "journal.jsonl")
note = Journal(file, SystemClock(), "here")
note("stacks", "asked")
while not file.path.exists() or not file.path.stat().st_size: pass
writer = IncidentWriter(folder, RunOptions(), PLAYBOOKS, note=note)
shelf = Shelf(writer.write, writer.write_asked, note)
def keep(seconds):
    import msgspec, time
    snapshot = later(seconds)
    key = f"k{seconds}"
    incident = msgspec.structs.replace(snapshot.incident, key=key)
    shelf.keep(msgspec.structs.replace(snapshot, incident=incident))
    end = time.monotonic() + 60
    while not shelf.is_settled(key) and time.monotonic() < end:
        time.sleep(0.01)
    return shelf.path(key)
for record in records():
    shelf.see(record)
ballast = folder / "ballast"
with ballast.open("wb", buffering=0) as full:
    try:
        while full.write(b"x" * 4096): pass
    except OSError as error: print("full:", error.strerror)
print("kept", keep(1), keep(2), keep(3))
print("left", sorted(one.name for one in folder.iterdir()))
ballast.unlink()
print("kept", keep(4) is not None)
subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
print("kept", keep(5), keep(6))
note("stacks", "asked")
print("removed", prune(folder, 1))
shelf.close(9)
print("closed", file.close(9))
print("left", len([one for one in folder.iterdir() if one.name.endswith("pipeline-deadlock")]))
print("journal", (folder / "journal.jsonl").read_text().count("not kept: No space left"))
"""


def test_a_full_or_read_only_disk_is_said_once_and_leaves_nothing_half_written(
    tmp_path,
):
    require_root()
    argv = ["unshare", "--mount", sys.executable, "-c", FULL, str(tmp_path), *sys.path]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if "unshare" in done.stderr or "mount:" in done.stderr:
        give_up(f"no mount namespace here: {done.stderr}")
    assert done.returncode == 0, done.stderr
    told = done.stdout.splitlines()
    assert "full: No space left on device" in told
    assert "kept None None None" in told
    assert "left ['ballast', 'journal.jsonl']" in told
    assert "kept True" in told
    assert "kept None None" in told
    assert told[-4:] == ["removed []", "closed True", "left 1", "journal 3"]
    said = [line for line in told if "not kept" in line]
    assert said == [
        "incident k1 not kept: No space left on device; watching goes on",
        "incident k5 not kept: Read-only file system; watching goes on",
    ]
    assert len([line for line in told if "actions are not noted" in line]) == 1
