"""Sources that can block live in children: silence, death, and coming back."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from dflash_watch.agent import mounts
from dflash_watch.agent.child import Child
from dflash_watch.agent.files import Files
from dflash_watch.agent.logsources import SourceFinder
from watch.agent.driving import wait_for
from watch.agent.fuse import mounted


@pytest.fixture
def make():
    made = []

    def start(serve, deadline_s: float = 0.2) -> Child:
        made.append(Child("the source", serve, deadline_s))
        return made[-1]

    yield start
    for each in made:
        each.close()
        wait_for(lambda each=each: each.ask({}, -1.0) is False and not each._ending, 5.0)


def answer_of(child: Child, request: dict, now_s: float = 0.0) -> dict:
    assert child.ask(request, now_s)
    answer = child.collect(now_s, 10.0)
    assert answer is not None
    return answer


def test_a_child_answers_and_keeps_its_own_state(make):
    counted: list[int] = []

    def serve(request: dict) -> dict:
        counted.append(1)
        return {"n": len(counted), "got": request["x"]}

    child = make(serve)
    assert answer_of(child, {"x": 5}) == {"n": 1, "got": 5}
    assert answer_of(child, {"x": 6}) == {"n": 2, "got": 6}
    assert counted == []


def test_one_look_that_waits_gets_a_large_answer_whole(make):
    child = make(lambda _request: {"text": "x" * 3_000_000}, 60.0)
    assert len(answer_of(child, {})["text"]) == 3_000_000


def test_large_answers_come_whole(make):
    child = make(lambda _request: {"text": "x" * 3_000_000})
    assert child.ask({}, 0.0)
    found = []
    wait_for(lambda: found.append(child.collect(0.0, 0.1)) or found[-1])
    assert len(found[-1]["text"]) == 3_000_000


def test_an_error_in_the_child_is_its_answer(make):
    child = make(lambda request: {"x": request["absent"]})
    assert answer_of(child, {}) == {"error": "KeyError: 'absent'"}


def test_only_one_request_is_under_way(make):
    child = make(lambda _request: time.sleep(1000) or {})
    assert child.ask({}, 0.0)
    assert not child.ask({}, 0.1)


def test_silence_becomes_a_gap_with_state_and_kernel_function(make):
    child = make(lambda _request: time.sleep(1000) or {})
    child.ask({}, 0.0)
    wait_for(lambda: "nanosleep" in (Path(f"/proc/{child.pid}/wchan").read_text()))
    assert child.collect(0.3, 0.0) is None
    assert child.gap(0.3) is None  # the first answer has three times the deadline
    child.collect(1.0, 0.0)
    gap = child.gap(1.0)
    assert gap["since_s"] == 1.0
    assert "the source: no answer for 1 s, the call is in state S in " in gap["reason"]


def spin_until(path: Path) -> dict:
    while not path.exists():
        sum(range(2000))
    return {"seen": True}


def test_a_child_that_waits_for_a_core_is_not_taken_for_a_call_that_hangs(make, tmp_path):
    core = min(os.sched_getaffinity(0))
    rival = os.fork()
    if rival == 0:
        os.sched_setaffinity(0, {core})
        while True:
            pass

    def serve(_request: dict) -> dict:
        os.sched_setaffinity(0, {core})
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        return spin_until(tmp_path / "go")

    child = make(serve)
    try:
        child.ask({}, 0.0)
        wait_for(lambda: os.sched_getscheduler(child.pid) == os.SCHED_IDLE)
        child.collect(2.0, 0.0)
        assert child.gap(2.0) is None
        child.collect(100.0, 0.0)
        assert "no answer for 100 s, the call is in state R" in child.gap(100.0)["reason"]
    finally:
        os.kill(rival, signal.SIGKILL)
        os.waitpid(rival, 0)


def test_a_child_that_spins_is_a_call_that_hangs(make, tmp_path):
    child = make(lambda _request: spin_until(tmp_path / "never"))
    child.ask({}, 0.0)
    wait_for(lambda: child.collect(1.0, 0.0) or child.gap(1.0))
    assert "the call is in state R" in child.gap(1.0)["reason"]


def test_a_silent_child_is_killed_once_and_followed_by_one_other(make):
    child = make(lambda _request: time.sleep(1000) or {})
    child.ask({}, 0.0)
    first = child.pid
    child.collect(5.0, 0.0)
    wait_for(lambda: child.collect(5.1, 0.0) or child.ask({}, 5.1) or child.pid is None)
    assert child.gap(5.2)["since_s"] == 5.2
    assert not child.ask({}, 5.2)  # a pause first
    assert child.ask({}, 8.0)
    assert child.pid not in (None, first)


def test_the_gap_ends_with_the_next_answer(make, tmp_path):
    stuck = tmp_path / "stuck"
    stuck.touch()

    def serve(_request: dict) -> dict:
        while stuck.exists():
            time.sleep(0.01)
        return {"well": True}

    child = make(serve)
    child.ask({}, 0.0)
    wait_for(lambda: child.collect(1.0, 0.0) or child.gap(1.0))
    stuck.unlink()
    assert child.collect(1.1, 10.0) == {"well": True}
    assert child.gap(1.2) is None


def test_a_child_that_dies_is_a_gap_that_says_how(make):
    child = make(lambda _request: os.kill(os.getpid(), signal.SIGSEGV) or {})
    child.ask({}, 0.0)
    wait_for(lambda: child.collect(0.1, 0.1) or child.gap(0.1))
    assert "ended (signal 11)" in child.gap(0.1)["reason"]


def target(link: str | Path) -> str:
    return str(Path(link).readlink())


def test_a_child_holds_none_of_the_agents_pipes(make):
    reading, writing = os.pipe()
    child = make(lambda _request: {"fds": [target(f"/proc/self/fd/{fd}") for fd in (0, 1)]})
    inode = target(f"/proc/self/fd/{writing}")
    assert answer_of(child, {}) == {"fds": ["/dev/null", "/dev/null"]}
    held = [target(entry) for entry in Path(f"/proc/{child.pid}/fd").iterdir()]
    assert inode not in held
    os.close(reading)
    os.close(writing)


@pytest.fixture
def everything_can_hang(monkeypatch):
    """As if each file system here were a network mount."""
    monkeypatch.setattr(mounts.Mounts, "can_hang", lambda _self, path, _now_s: bool(path))


def test_files_on_a_network_mount_are_read_in_a_child(everything_can_hang, trainer, tmp_path):
    files = Files("/proc")
    wait_for(lambda: (tmp_path / "train.log").stat().st_size)
    request = {"sources": [list(each) for each in SourceFinder("/proc").read([trainer.pid], 0.0)]}
    try:
        assert files.ask(request, 0.0) is None
        answer = files.collect(0.0, 10.0)
        assert answer["logs"][0]["text"].startswith("step=1 ")
        assert files.child.pid is not None
    finally:
        files.close()


def test_a_new_child_goes_on_where_the_lost_one_stopped(everything_can_hang, trainer, tmp_path):
    files = Files("/proc")
    wait_for(lambda: (tmp_path / "train.log").stat().st_size)
    request = {"sources": [list(each) for each in SourceFinder("/proc").read([trainer.pid], 0.0)]}
    try:
        first = next_answer(files, request)["logs"][0]
        os.kill(files.child.pid, signal.SIGKILL)
        second = next_answer(files, request)["logs"][0]
        assert second["offset"] == first["offset"] + len(first["text"].encode())
    finally:
        files.close()


def next_answer(files: Files, request: dict) -> dict:
    """Asks until there is an answer; the clock runs on a second a try."""
    for now_s in range(1000, 1100):
        answer = files.ask(request, now_s) or files.collect(now_s, 0.2)
        if answer is not None:
            return answer
        time.sleep(0.02)
    raise AssertionError("never answered")


@pytest.mark.parametrize(
    ("kind", "hangs"),
    [
        ("nfs4", True),
        ("cifs", True),
        ("fuse.sshfs", True),
        ("ceph", True),
        ("lustre", True),
        ("9p", True),
        ("ext4", False),
        ("zfs", False),
        ("tmpfs", False),
        ("overlay", False),
        ("fuse.lxcfs", False),
    ],
)
def test_what_can_hang_is_told_by_the_kind_of_file_system(tmp_path, kind, hangs):
    (tmp_path / "self").mkdir()
    line = f"36 35 98:0 / /data rw,noatime master:1 - {kind} server:/x rw\n"
    root = "25 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
    (tmp_path / "self" / "mountinfo").write_text(root + line)
    table = mounts.Mounts(str(tmp_path))
    assert table.can_hang("/data/run/train.log", 0.0) is hangs
    assert table.can_hang("/database", 0.0) is False


def test_the_longest_mount_point_wins_and_escapes_are_read():
    text = (
        "25 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
        "30 25 0:9 / /my\\040runs rw - nfs server:/r rw\n"
        "31 30 0:9 / /my\\040runs/local rw - xfs /dev/sdb rw\n"
    )
    assert mounts.parse_mountinfo(text) == [
        ("/my runs/local", "xfs"),
        ("/my runs", "nfs"),
        ("/", "ext4"),
    ]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can mount")
def test_a_file_server_behind_proc_that_hangs_costs_the_host_sample_alone(agent, trainer):
    with mounted(b"0.50 0.40 0.30 1/100 12\n") as mount:
        lay_over = f'mount --bind {mount.path} /proc/loadavg && exec "$@"'
        watch = agent({"pid": trainer.pid}, prefix=("unshare", "-m", "sh", "-c", lay_over, "sh"))
        assert watch.frame(lambda frame: "load1" in frame.get("host", {}))["host"]["load1"] == 0.5
        mount.freeze()
        gap = watch.frame(lambda frame: gap_of(frame, "host"))
        assert "lxcfs: no answer" in gap_of(gap, "host")["reason"]
        assert gap["processes"]
        assert gap["host"]["disks"]
        assert "load1" not in gap["host"]
        mount.thaw()
        healed = watch.frame(lambda frame: "load1" in frame.get("host", {}))
        assert gap_of(healed, "host") is None


def gap_of(frame, source):
    return next((gap for gap in frame["gaps"] if gap["source"] == source), None)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can mount")
def test_a_log_on_a_mount_that_stops_answering_is_a_gap_and_frames_go_on(agent, program):
    text = "import os, sys, time\nos.dup2(os.open(sys.argv[1], os.O_WRONLY), 1)\ntime.sleep(600)"
    with mounted(b"step=7 loss=0.5\n") as mount:
        run = program(text, str(mount.path))
        watch = agent({"pid": run.pid})
        known = watch.frame(lambda frame: frame.get("logs"))
        assert known["logs"][0]["text"] == "step=7 loss=0.5\n"
        mount.freeze()
        gap = watch.frame(lambda frame: gap_of(frame, "log"))
        assert "no answer" in gap_of(gap, "log")["reason"]
        assert gap["processes"][0]["state"] == "S"
        mount.thaw()
        assert gap_of(watch.frame(lambda frame: frame.get("logs")), "log") is None
