"""`diagnose`: files in, one reading out, and one clear line for what is wrong with the words."""

from __future__ import annotations

import json

import pytest
from dflash_watch.cli import main

LOG = 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n'
LOG += "RuntimeError: CUDA error: an illegal memory access was encountered\n"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "log.txt").write_text(LOG)
    (tmp_path / "context.yaml").write_text("observed: {process_alive: false}\n")
    return tmp_path


def test_a_folder_is_read_and_told_as_one_object(folder, capfd):
    assert main(["diagnose", str(folder), "--json"]) == 0
    told = json.loads(capfd.readouterr().out)
    assert (told["verdict"], told["failure"], told["playbook"]) == (
        "crashed", "kernel-fault", "kernel-fault",
    )  # fmt: skip
    assert told["schema"] == 1
    assert told["incident"] is None
    missing = " ".join(one["text"] for one in told["evidence"] if one["kind"] == "missing")
    assert "stacks: not given" in missing


def test_for_people_it_says_what_why_and_what_to_do(folder, capfd):
    assert main(["diagnose", str(folder)]) == 0
    told = capfd.readouterr().out
    assert told.startswith("# crashed (kernel-fault)")
    for title in ("Why we think so", "What could not be seen", "What to do", "Look-alikes"):
        assert title in told
    assert "{" not in told.replace("{print", "")


def test_single_files_do_and_stand_in_for_those_of_the_folder(folder, tmp_path, capfd):
    other = tmp_path / "other.log"
    other.write_text("OSError: [Errno 28] No space left on device\n")
    assert main(["diagnose", "--log", str(folder / "log.txt"), "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["failure"] == "kernel-fault"
    assert main(["diagnose", str(folder), "--log", str(other), "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["failure"] != "kernel-fault"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "nothing to read"),
        (["nowhere"], "nowhere: no such folder"),
        (["--log", "nowhere.txt"], "--log: nowhere.txt: no such file"),
        (["--log", "."], "--log: .: is a folder"),
    ],
)
def test_what_cannot_be_read_is_one_line_and_a_usage_error(words, told, capfd):
    assert main(["diagnose", *words]) == 64
    shown = capfd.readouterr()
    assert told in shown.err
    assert shown.err.count("\n") == 1
    assert shown.out == ""


def test_a_folder_without_any_known_file_names_those_that_are_known(tmp_path, capfd):
    assert main(["diagnose", str(tmp_path)]) == 64
    assert "log.txt" in capfd.readouterr().err


def test_what_lies_in_a_folder_under_other_names_is_told_with_the_option_that_takes_it(
    tmp_path, capfd
):
    for name in ("smi.png", "slurm-8812.out"):
        (tmp_path / name).write_text("step 10\n")
    assert main(["diagnose", str(tmp_path)]) == 64
    told = capfd.readouterr().err
    assert "there are slurm-8812.out, smi.png" in told
    assert f"--log {tmp_path / 'slurm-8812.out'}" in told


def test_a_file_in_place_of_the_folder_is_told_how_to_name_it(tmp_path, capfd):
    path = tmp_path / "train.log"
    path.write_text("step 10\n")
    assert main(["diagnose", str(path)]) == 64
    told = capfd.readouterr().err
    assert "is a file" in told
    assert f"--log {path}" in told


def test_a_file_of_stacks_without_a_stack_is_told(tmp_path, capfd):
    (tmp_path / "stacks.txt").write_text("total 48\ndrwxr-xr-x 2 me me 4096 checkpoints\n")
    assert main(["diagnose", str(tmp_path)]) == 0
    assert "stacks.txt: no stack of a known tool is in it" in capfd.readouterr().out


def test_a_run_that_is_well_needs_no_step(tmp_path, capfd):
    (tmp_path / "log.txt").write_text("".join(f"step {i} loss 2.0\n" for i in range(30)))
    assert main(["diagnose", str(tmp_path)]) == 0
    assert "## What to do\n\nNothing." in capfd.readouterr().out


def test_a_line_too_long_to_quote_is_cut_visibly(tmp_path, capfd):
    line = "torch.OutOfMemoryError: CUDA out of memory. " + "Tried to allocate 3 GiB. " * 20
    (tmp_path / "log.txt").write_text(f"{LOG.splitlines()[0]}\n{line}\n")
    assert main(["diagnose", str(tmp_path)]) == 0
    assert "... (the allocator found no room)" in capfd.readouterr().out
