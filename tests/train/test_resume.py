"""Exact resume: killed at any moment or out of disk, a run ends in the bits of another."""

from __future__ import annotations

import os
import random
import re
import subprocess
import time

import pytest
import torch
from dflash_train.run import RunRequest, execute
from dflash_train.settings import parse_overrides
from safetensors.torch import load_file
from train.conftest import Command

DEADLINE_S = 150
STEPS = 60
LONG = (f"optim.steps={STEPS}", "report.every_steps=1", "checkpoint.every_steps=4")


def newest_step(command):
    """The last step its log tells; 0 before the first."""
    log = command.run_dir / "train.log"
    found = re.findall(r"step=(\d+)/", log.read_text()) if log.exists() else []
    return int(found[-1]) if found else 0


def kill_at(command, process, step):
    until_s = time.monotonic() + DEADLINE_S
    while newest_step(command) < step:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until_s, "did not come to that step in time"
        time.sleep(0.005)
    process.kill()
    process.communicate()


def tensors_of(run_dir, step):
    folder = run_dir / "checkpoints" / f"step-{step:08d}"
    names = ("drafter.safetensors", "optimizer.safetensors")
    return [load_file(folder / name) for name in names]


def assert_equal(run_dir, straight, step):
    for one, other in zip(tensors_of(run_dir, step), tensors_of(straight, step), strict=True):
        assert one.keys() == other.keys()
        assert [name for name in one if not torch.equal(one[name], other[name])] == []


def test_killed_at_random_steps_it_ends_in_the_bits_of_an_undisturbed_run(
    small, command, started, tmp_path
):
    seed = int.from_bytes(os.urandom(4), "little")
    print(f"random.Random({seed})")  # shown when this fails
    draw = random.Random(seed)
    first = draw.randint(5, STEPS // 2)  # the checkpoint of step 4 is written by then
    kill_at(command, started(command.train(*LONG)), first)
    kill_at(command, started(command.resume()), draw.randint(first + 1, STEPS - 2))
    last = started(command.resume())
    out, err = last.communicate(timeout=DEADLINE_S)
    assert last.returncode == 0, err
    assert "resuming from" in out
    straight = RunRequest(
        config=parse_overrides(small, LONG),
        run_dir=tmp_path / "straight",
        command=("x",),
        watch=False,
    )
    assert execute(straight).code == 0
    assert_equal(command.run_dir, tmp_path / "straight", STEPS)


@pytest.fixture
def small_disk(tmp_path):
    """Mounts a file system of so many bytes."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    mount = tmp_path / "disk"
    mount.mkdir()

    def mounted(size):
        made = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", mount],
            capture_output=True,
            text=True,
            check=False,
        )
        if made.returncode != 0:
            pytest.skip(f"cannot mount a tmpfs here: {made.stderr.strip()}")
        return mount

    yield mounted
    if os.path.ismount(mount):
        subprocess.run(["umount", "--lazy", mount], check=True)


def size_of(folder):
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def test_out_of_disk_it_goes_on_says_so_and_loses_nothing(small, small_disk, started, tmp_path):
    straight = tmp_path / "straight"
    request = RunRequest(config=small, run_dir=straight, command=("x",), watch=False)
    assert execute(request).code == 0
    one = size_of(straight / "checkpoints" / "step-00000012")
    rest = size_of(straight) - size_of(straight / "checkpoints")
    disk = small_disk(rest + one * 3 // 2 + 128 * 1024)  # pages are not filled to the last byte
    command = Command(disk / "run")
    process = started(command.train("plan.override=disk"))  # else it would not begin
    out, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 1
    assert "step=12/12" in out
    assert re.search(r"checkpoint at step 10 not written: .*No space.*; training goes on", err)
    assert "last checkpoint not written" in err.splitlines()[-1]
    folder = command.run_dir / "checkpoints"
    assert [path.name for path in folder.iterdir()] == ["step-00000005"]
    subprocess.run(["mount", "-o", "remount,size=256m", disk], check=True)
    resumed = started(command.resume())
    _, err = resumed.communicate(timeout=DEADLINE_S)
    assert (resumed.returncode, err) == (0, "")
    assert_equal(command.run_dir, straight, 12)
