"""Places that lack what a guest expects: the real agent starts, sees, and says what it cannot."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from dflash_watch.agent.stub import STUB
from watch.agent.driving import AgentProcess, wait_for

Start = Callable[..., AgentProcess]
pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can mount and change users")
PYTHON = "/usr/bin/python3"
"""The system's: others may lie where only root may look."""
NOBODY = ("setpriv", "--reuid", "54321", "--regid", "54321", "--clear-groups")
# Refuses memfd_create as a container's seccomp profile may, then becomes what it was told.
WITHOUT_MEMFD = """
import ctypes, os, struct, sys
number = {"x86_64": 319, "aarch64": 279}[os.uname().machine]
steps = ((0x20, 0, 0, 0), (0x15, 0, 1, number), (6, 0, 0, 0x50001), (6, 0, 0, 0x7FFF0000))
code = b"".join(struct.pack("=HBBI", *step) for step in steps)
kept = ctypes.create_string_buffer(code)
program = struct.pack("=HxxxxxxQ", len(steps), ctypes.addressof(kept))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0
os.execvp(sys.argv[1], sys.argv[1:])
"""


def shell(before: str) -> tuple[str, ...]:
    """Does something first, then becomes the agent's own command."""
    return ("unshare", "-m", "sh", "-c", before + ' && exec "$@"', "sh")


PLACES = {
    "no environment": ("env", "-i"),
    "nothing writable and no shared memory": shell(
        "mount -t tmpfs -o ro none /tmp && mount -t tmpfs -o ro none /var"
        " && mount --bind /proc/self/fdinfo /dev/shm"
    ),
    "no /proc/sys and no /sys": shell("mount -t tmpfs none /proc/sys && mount -t tmpfs none /sys"),
    "little memory": ("prlimit", "--as=300000000"),
    "memfd_create refused": (sys.executable, "-c", WITHOUT_MEMFD),
    "a directory that was deleted": shell("cd $(mktemp -d) && rmdir $PWD"),
}


@pytest.mark.parametrize("place", PLACES)
def test_the_agent_watches_from_a_place_with(place, agent: Start, trainer):
    watch = agent({"pid": trainer.pid}, prefix=PLACES[place])
    frame = watch.frame(lambda frame: frame["seq"] >= 2)
    assert [each["pid"] for each in frame["processes"]] == [trainer.pid]
    assert frame["logs"][0]["size_bytes"] > 0
    assert {gap["source"] for gap in frame["gaps"]} <= {"gpu", "kernel"}
    assert watch.end() == 0


def test_a_relative_path_from_a_deleted_directory_is_said_to_be_missing(agent: Start):
    watch = agent({"log": "train.log"}, prefix=PLACES["a directory that was deleted"])
    note = watch.frame(lambda frame: "no file" in frame["run"].get("note", ""))["run"]["note"]
    assert "(deleted)/train.log" in note


def test_a_user_without_a_name_sees_what_is_allowed_and_says_what_is_not(agent: Start, trainer):
    watch = agent({"pid": trainer.pid}, prefix=("env", "-i", *NOBODY))
    frame = watch.frame(lambda frame: frame["seq"] >= 2)
    assert frame["processes"][0]["cpu_ticks"] >= 0
    (gap,) = [gap for gap in frame["gaps"] if gap["source"] == "log"]
    assert "uid 54321" in gap["reason"]


def test_where_proc_hides_strangers_it_is_said_whose_eyes_are_needed(agent: Start, trainer):
    hidden = shell("mount -t proc -o hidepid=2 proc /proc")
    watch = agent({"pid": trainer.pid}, prefix=(*hidden, *NOBODY))
    note = watch.frame(lambda frame: "no process" in frame["run"].get("note", ""))["run"]["note"]
    assert "hidepid" in note
    assert "uid 54321" in note


def test_where_no_process_can_be_started_the_run_is_still_watched(agent: Start):
    text = "import time; train = 1; time.sleep(600)"
    with subprocess.Popen([*NOBODY, PYTHON, "-c", text]) as run:
        wait_for(lambda: "python" in Path(f"/proc/{run.pid}/comm").read_text())
        none = (*NOBODY, "prlimit", "--nproc=1")
        watch = agent({"pid": run.pid}, prefix=none, python=PYTHON)
        frame = watch.frame(lambda frame: frame["run"]["state"] == "found" and frame["seq"] >= 2)
        run.kill()
    assert "train = 1" in frame["processes"][0]["cmd"]
    (gap,) = [gap for gap in frame["gaps"] if gap["source"] == "gpu"]
    assert "limit of processes" in gap["reason"]
    assert watch.end() == 0


def test_a_python_whose_c_library_cannot_be_called_watches_all_the_same(
    agent: Start, trainer, tmp_path
):
    # As in a static Python: the program itself cannot be opened as a library.
    refuses = (
        "import ctypes\n"
        "def refused(name, *more): raise OSError('Dynamic loading not supported')\n"
        "ctypes.CDLL = refused\n"
    )
    (tmp_path / "stub.py").write_text(refuses + STUB)
    wrapper = tmp_path / "static-python"
    wrapper.write_text(f"#!/bin/sh\nexec {sys.executable} -I -S -B {tmp_path}/stub.py\n")
    wrapper.chmod(0o755)
    watch = agent({"pid": trainer.pid}, python=str(wrapper))
    frame = watch.frame(lambda frame: any(gap["source"] == "gpu" for gap in frame["gaps"]))
    assert "train.py" in frame["processes"][0]["cmd"]
    (gap,) = [gap for gap in frame["gaps"] if gap["source"] == "gpu"]
    assert "no NVIDIA library" in gap["reason"]
    assert watch.end() == 0
