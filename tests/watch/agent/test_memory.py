"""Processes whose memory map is held, made for real: what reads them must not hang with them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from dflash_watch.agent.find import Found, find_run
from dflash_watch.agent.memory import Reads, read_argv, read_environment, read_maps
from watch.agent.driving import state_of, wait_for
from watch.agent.fuse import Mount, mounted

# One thread reads a page of the mount through /proc/self/mem and holds the map while it waits; the
# next one that maps anything stands behind it, and everybody else behind that one.
HELD = """
import ctypes, os, sys, threading, time
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
place = libc.mmap(None, 4096, 1, 2, os.open(sys.argv[1], os.O_RDONLY), 0)
memory = os.open("/proc/self/mem", os.O_RDONLY)
go = threading.Event()
def read():
    go.wait()
    try: os.pread(memory, 8, place)
    except OSError: pass
def want():
    go.wait()
    time.sleep(0.3)
    libc.mmap(None, 4096, 1, 0x22, -1, 0)
for work in (read, want):
    threading.Thread(target=work, daemon=True).start()
print("up", flush=True)
sys.stdin.readline()
go.set()
step = 0
while True:
    step += 1
    os.write(1, b"step=%d loss=1.5\\n" % step)
    time.sleep(0.05)
"""


@pytest.fixture
def mount() -> Iterator[Mount]:
    with mounted(b"x" * 8192) as made:
        yield made


@pytest.fixture
def held(program, mount, tmp_path) -> subprocess.Popen[bytes]:
    """A training script whose map is held by a dead mount; it goes on printing."""
    log = tmp_path / "train.log"
    with log.open("wb") as output:
        run = program(HELD, str(mount.path), stdin=subprocess.PIPE, stdout=output)
    wait_for(lambda: log.read_bytes() == b"up\n")
    mount.freeze()
    run.stdin.write(b"go\n")
    run.stdin.flush()
    wait_for(lambda: is_held(run.pid))
    return run


def is_held(pid: int) -> bool:
    """A stranger that reads its command line sleeps in state D."""
    with subprocess.Popen(["cat", f"/proc/{pid}/cmdline"], stdout=subprocess.DEVNULL) as reader:
        state = wait_for(lambda: (reader.poll() is not None and "ended") or in_d(reader.pid))
        reader.kill()
    return state != "ended"


def in_d(pid: int) -> bool:
    return state_of(pid) == "D"


def test_words_environment_and_map_of_a_process_are_read(program):
    run = program(env={**os.environ, "RANK": "3"}, name="words.py")
    wait_for(lambda: read_argv("/proc", run.pid)[-1:] == [str(run.args[1])])
    assert b"RANK=3" in (read_environment("/proc", run.pid) or b"").split(b"\0")
    assert "[stack]" in read_maps("/proc", run.pid)


def test_a_process_that_has_gone_has_no_words():
    assert read_argv("/proc", 2**22 - 1) == []
    assert read_environment("/proc", 2**22 - 1) is None


def test_a_process_whose_memory_is_held_is_named_and_all_others_are_still_read(held):
    reads = Reads()
    assert reads.read("/proc", held.pid, "cmdline", 4096) is None
    problem = reads.problem([held.pid, os.getpid()])
    assert problem
    assert f"{held.pid} (python)" in problem["reason"]
    assert reads.problem([os.getpid()]) is None
    assert sys.executable.encode() in (reads.read("/proc", os.getpid(), "cmdline", 4096) or b"")
    reads.close()


def test_memory_that_answers_again_is_read_again(held, mount):
    reads = Reads(leave_alone_s=0.0)
    assert reads.read("/proc", held.pid, "cmdline", 4096) is None
    mount.thaw()
    assert wait_for(lambda: reads.read("/proc", held.pid, "cmdline", 4096))
    assert reads.problem([held.pid]) is None
    reads.close()


def test_a_forked_process_has_a_helper_of_its_own():
    reads = Reads()
    assert reads.read("/proc", os.getpid(), "cmdline", 4096)
    child = os.fork()
    if child == 0:
        own = reads.read("/proc", os.getpid(), "cmdline", 4096)
        os._exit(0 if own else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert reads.read("/proc", os.getpid(), "cmdline", 4096)
    reads.close()


def test_a_run_whose_memory_is_held_is_watched_all_the_same(agent, held):
    watch = agent({"pid": held.pid})
    frame = watch.frame(lambda frame: frame["run"]["state"] == "found" and frame["seq"] >= 2)
    (process,) = frame["processes"]
    assert (process["comm"], process["cmd"], process["is_python"]) == ("python", "[python]", True)
    assert any("holds its map" in gap["reason"] for gap in frame["gaps"])
    assert "D" in {row[2] for row in frame["threads"][str(held.pid)]}
    later = watch.frame(lambda later: "step=" in later["logs"][0].get("text", ""))
    assert later["boot_s"] > frame["boot_s"]
    assert watch.end() == 0


def test_a_run_is_found_beside_one_whose_memory_is_held(held, program, tmp_path):
    other = program(name="beside_the_held.py")
    wait_for(lambda: "beside_the_held.py" in " ".join(read_argv("/proc", other.pid)))
    assert held.poll() is None
    found = find_run("/proc", {"match": r"beside_the_held\.py"}, agent_pid=2**22 - 1)
    assert isinstance(found, Found)
    assert found.root_pid == other.pid
