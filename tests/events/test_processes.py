"""Ends and beginnings of real processes: killed, forked, reused pids, old Pythons."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import pythons
from dflash_events.beats import BeatPage, remove_dead_pages
from dflash_events.identity import Identity, is_alive, read_identity
from dflash_events.reader import EventTail, open_beats, read_manifest

ROOT = Path(__file__).parents[2]

BEGIN = """
import os, sys, time, signal, threading
from pathlib import Path
from dflash_events import RunWriter
run, shm = Path(sys.argv[1]), Path(sys.argv[2])
"""


def program(text, tmp_path, shm, python=sys.executable):
    """Start a program that writes a run; it may say things on standard output."""
    return subprocess.Popen(
        [python, "-c", BEGIN + text, tmp_path, shm],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "dflash")},
    )


def finished(process, code=0):
    with process:
        out, err = process.communicate(timeout=60)
    assert process.returncode == code, err
    return out, err


def events_of(run):
    with EventTail(run / "events.jsonl") as tail:
        return tail.read(2**24).events


def test_sigkill_leaves_a_directory_that_reads_well(tmp_path, shm):
    process = program(
        """
with RunWriter(run, shm=shm) as writer:
    worker = writer.worker("target-0", role="target")
    worker.beat(step=8)
    writer.checkpoint(step=8, path="c")
    while not any(path.stat().st_size for path in run.glob("events.jsonl")): time.sleep(0.01)
    print("ready", flush=True)
    time.sleep(60)
""",
        tmp_path,
        shm,
    )
    assert process.stdout.readline() == "ready\n"
    os.kill(process.pid, signal.SIGKILL)
    finished(process, -signal.SIGKILL)
    manifest = read_manifest(tmp_path).data
    assert [event["kind"] for event in events_of(tmp_path)] == ["checkpoint"]
    with open_beats(tmp_path, manifest) as reader:
        page = reader.read()
    assert page["workers"][0]["step"] == 8
    assert not page["foreign"], "it is this run's own page, although the run is dead"
    assert is_alive(reader.identity) is False


def test_the_next_run_clears_away_pages_of_dead_runs_and_only_those(tmp_path, shm):
    process = program(
        """
with RunWriter(run, shm=shm): os.kill(os.getpid(), signal.SIGKILL)
""",
        tmp_path,
        shm,
    )
    finished(process, -signal.SIGKILL)
    (dead,) = shm.glob("dflash-beats-*")
    here = read_identity()
    BeatPage(here, "living", shm)
    BeatPage(here._replace(pid=2**22 - 1, boot_id="another-boot"), "elsewhere", shm)
    BeatPage(here._replace(pid=2**22 - 1, pid_namespace=1), "in-another", shm)
    (shm / "dflash-beats-rubbish").write_bytes(b"not a page")
    assert remove_dead_pages(shm) == [dead]
    assert len(list(shm.iterdir())) == 4


def test_a_page_of_another_process_reads_as_foreign(tmp_path, shm):
    here = read_identity()
    for who, foreign in (
        (here, False),
        (here._replace(start_ticks=here.start_ticks - 1), True),
        (here._replace(boot_id="another-boot"), True),
    ):
        page = BeatPage(who, f"{who.start_ticks}-{foreign}-{who.boot_id[:4]}", shm)
        manifest = {"process": here.as_dict(), "beats_path": str(page.path)}
        with open_beats(tmp_path, manifest) as reader:
            assert reader.read()["foreign"] is foreign


def test_a_forked_child_neither_writes_the_parents_page_nor_its_events(tmp_path, shm):
    process = program(
        """
writer = RunWriter(run, shm=shm)
with writer:
    worker = writer.worker("main", role="main")
    worker.beat(step=1)
    child = os.fork()
    if child == 0:
        try:
            worker.beat(step=99)
            with writer.phase("evaluating"), worker.waiting("lock", object="made in the child"):
                worker.queue(1, 2)
            writer.worker("child").beat()
            writer.event("checkpoint", step=99)
            worker.failed(ValueError("of the child"))
            sys.exit(3)
        finally:
            writer.exit(3, "failed")
    _, status = os.waitpid(child, 0)
    print(os.WEXITSTATUS(status))
    worker.beat(step=2)
""",
        tmp_path,
        shm,
    )
    out, _ = finished(process)
    assert out == "3\n"
    assert [event["kind"] for event in events_of(tmp_path)] == ["exit"]
    manifest = read_manifest(tmp_path).data
    with open_beats(tmp_path, manifest) as reader:
        page = reader.read()
    (worker,) = page["workers"]
    assert (worker["step"], worker["state"], worker["phase"]) == (2, "running", None)
    assert worker["queue_depth"] is None


@pytest.mark.parametrize(
    ("end", "status", "expected"),
    [
        ("raise ValueError('gone wrong')", 1, (1, "failed", "ValueError: gone wrong")),
        (
            "sys.exit(4)",
            4,
            (None, "stopped", "the interpreter ended before the run said it was done"),
        ),
    ],
)
def test_a_writer_nobody_closed_is_flushed_at_exit(tmp_path, shm, end, status, expected):
    process = program(
        f"""
writer = RunWriter(run, shm=shm).start()
for step in range(100): writer.event("checkpoint", step=step)
{end}
""",
        tmp_path,
        shm,
    )
    finished(process, status)
    events = events_of(tmp_path)
    assert len(events) == 101
    last = events[-1]
    assert (last["code"], last["reason"], last["message"]) == expected
    assert list(shm.iterdir()) == []


@pytest.mark.parametrize("version", pythons.VERSIONS)
def test_both_halves_work_on_other_pythons(tmp_path, shm, version):
    """The reading half travels to whatever Python the watched machine has."""
    process = program(
        """
import json
from dflash_events.reader import EventTail, open_beats, read_manifest
with RunWriter(run, shm=shm, config={"lr": 1}) as writer:
    worker = writer.worker("target-0", role="target", device="cpu")
    with worker.waiting("queue-put", object="hs-queue"):
        worker.beat(step=4)
        with open_beats(run, read_manifest(run).data) as beats:
            page = beats.read()
            while page["ticker"] is None: page = beats.read()
with EventTail(run / "events.jsonl") as tail: events = tail.read().events
print(json.dumps([page, events]))
""",
        tmp_path,
        shm,
        pythons.python(version),
    )
    out, _ = finished(process)
    page, events = json.loads(out)
    assert (page["workers"][0]["step"], page["workers"][0]["wait"]) == (4, "queue-put")
    assert page["ticker"]["beats"] >= 1
    assert [event["kind"] for event in events] == ["exit"]


def test_a_reader_does_not_load_the_writing_half():
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys, dflash_events.reader; print([m for m in sys.modules if 'dflash' in m])",
        ],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "dflash")},
    )
    assert "writer" not in done.stdout
    assert "sink" not in done.stdout


def test_a_reused_pid_is_not_the_same_process():
    here = read_identity()
    assert is_alive(here) is True
    assert is_alive(here._replace(start_ticks=here.start_ticks + 1)) is False
    assert is_alive(Identity(here.pid, here.start_ticks, "another-boot")) is None
    assert is_alive(Identity(here.pid, here.start_ticks)) is True, "unknown parts decide nothing"


def test_a_command_with_brackets_and_blanks_does_not_confuse_stat(tmp_path):
    proc = tmp_path / "proc"
    (proc / "7").mkdir(parents=True)
    tail = " ".join(["S", *("1" for _ in range(18)), "4242", "0"])
    (proc / "7" / "stat").write_text(f"7 (evil) R 1 (x) {tail}\n")
    identity = read_identity(7, proc)
    assert (identity.pid, identity.start_ticks) == (7, 4242)
    assert read_identity(8, proc) is None
