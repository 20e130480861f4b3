"""Is the code on disk what the run loaded? Real files, a real process, a real child."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from dflash_watch.agent import proc
from dflash_watch.agent.memory import read_argv
from dflash_watch.agent.probes import code
from watch.agent.driving import wait_for


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model/layers.py").write_text("x = 1\n")
    (tmp_path / "train.py").write_text("import time\ntime.sleep(60)\n")
    for place in (".git", "venv", "__pycache__"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "odd.py").write_text("y = 2\n")
    return tmp_path


def hashes(folder):
    files = [folder / "train.py", folder / "model/layers.py"]
    return {str(one): hashlib.sha256(one.read_bytes()).hexdigest() for one in files}


def test_files_that_are_as_loaded_differ_in_nothing(folder):
    told = code.check({"sources": hashes(folder)})
    assert told == {"how": "hashes", "num_files": 2, "num_changed": 0, "changed": []}


def test_a_file_that_was_copied_in_and_one_that_is_gone_are_told(folder):
    sources = hashes(folder)
    (folder / "train.py").write_text("faster = True\n")
    (folder / "model/layers.py").unlink()
    told = code.check({"sources": sources})
    assert {(one["path"], one["change"]) for one in told["changed"]} == {
        (str(folder / "train.py"), "differs"),
        (str(folder / "model/layers.py"), "removed"),
    }


def test_the_same_bytes_written_again_are_no_change(folder):
    sources = hashes(folder)
    (folder / "train.py").write_bytes((folder / "train.py").read_bytes())
    assert code.check({"sources": sources})["num_changed"] == 0


@pytest.fixture
def run(folder):
    begun = subprocess.Popen([sys.executable, "train.py"], cwd=folder)
    wait_for(lambda: read_argv("/proc", begun.pid)[-1:] == ["train.py"])
    yield begun
    begun.kill()
    begun.wait()


def test_of_a_foreign_run_files_written_after_it_began_are_told(folder, run):
    request = code.request_of("/proc", [run.pid], None, proc.boot_s())
    assert request is not None
    assert request["folder"] == str(folder)
    assert code.check(request)["num_changed"] == 0
    later = time.time() + 60
    os.utime(folder / "model/layers.py", (later, later))
    os.utime(folder / "venv/odd.py", (later, later))
    told = code.check(request)
    assert (told["how"], told["num_files"], told["num_changed"]) == ("times", 2, 1)
    assert told["changed"][0]["change"] == "newer"


def test_a_script_among_installed_packages_and_a_module_have_no_folder_of_their_own(run, tmp_path):
    assert code.request_of("/proc", [2**22 - 1], None, proc.boot_s()) is None
    inside = tmp_path / "site-packages"
    inside.mkdir()
    (inside / "tool.py").write_text("import time\ntime.sleep(60)\n")
    tool = subprocess.Popen([sys.executable, str(inside / "tool.py")])
    try:
        wait_for(lambda: len(read_argv("/proc", tool.pid)) == 2)
        assert code.script_of("/proc", tool.pid) is None
    finally:
        tool.kill()
        tool.wait()


@pytest.mark.parametrize("sources", [None, [], {}, {"a.py": 7}, "x"])
def test_a_manifest_without_usable_hashes_is_no_error(sources):
    told = code.request_of("/proc", [], {"sources": sources}, proc.boot_s())
    assert told is None or code.check(told)["num_changed"] == 0


def test_the_answer_comes_once_and_leaves_no_child_behind(folder):
    source = code.CodeSource("/proc")
    sources, now_s = hashes(folder), proc.boot_s()
    source.ask([os.getpid()], {"sources": sources}, now_s)
    assert source.child.pid is None  # not due so soon
    now_s += code.FIRST_S
    source.ask([os.getpid()], {"sources": sources}, now_s)
    pid = source.child.pid
    assert pid is not None
    answers = []
    wait_for(lambda: answers.append(source.collect(now_s)) or answers[-1])
    assert answers[-1]["num_files"] == 2
    assert source.child.pid is None
    assert source.collect(now_s) is None
    source.ask([os.getpid()], {"sources": sources}, now_s + 1)
    assert source.child.pid is None
    wait_for(lambda: source.child.tend(now_s) or not Path(f"/proc/{pid}").exists())
