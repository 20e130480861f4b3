"""Whole or not there; verified; the newest few kept."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
import torch
from dflash_train import checkpoint
from dflash_train.errors import CheckpointError, UsageError
from dflash_train.settings import parse_overrides
from dflash_train.stored import check_resumable, newest_stored

WEIGHTS = {"fc.weight": torch.arange(6.0).view(2, 3)}
STATE = {"step": torch.tensor(7.0), "exp_avg.fc.weight": torch.ones(2, 3)}


def test_what_was_saved_is_what_is_loaded(small, tmp_path):
    path, size = checkpoint.save(tmp_path, 7, small, WEIGHTS, STATE)
    found = checkpoint.load_newest(tmp_path)
    assert (found.step, found.config, found.path) == (7, small, path)
    assert torch.equal(found.weights["fc.weight"], WEIGHTS["fc.weight"])
    assert torch.equal(found.optimizer["step"], STATE["step"])
    assert size == sum(file.stat().st_size for file in path.glob("*.safetensors"))
    assert newest_stored(tmp_path).config == small


def test_a_state_that_says_another_step_is_not_believed(small, tmp_path):
    checkpoint.save(tmp_path, 5, small, WEIGHTS, STATE)
    path, _ = checkpoint.save(tmp_path, 10, small, WEIGHTS, STATE)
    file = path / "state.json"
    file.write_text(file.read_text().replace('"step": 10', '"step": 11'))
    with pytest.raises(CheckpointError, match="damaged, its sha256 is another"):
        checkpoint.load(path)
    assert checkpoint.load_newest(tmp_path).step == 5


def test_only_the_newest_are_kept(small, tmp_path):
    config = parse_overrides(small, ["checkpoint.keep=2"])
    for step in (5, 10, 15, 20):
        checkpoint.save(tmp_path, step, config, WEIGHTS, STATE)
    left = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert left == ["step-00000015", "step-00000020"]


@pytest.mark.parametrize("name", ["drafter.safetensors", "optimizer.safetensors", "state.json"])
@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
def test_a_damaged_checkpoint_is_skipped_for_the_one_before(small, tmp_path, name, damage):
    checkpoint.save(tmp_path, 5, small, WEIGHTS, STATE)
    path, _ = checkpoint.save(tmp_path, 10, small, WEIGHTS, STATE)
    file = path / name
    content = file.read_bytes()
    if damage == "remove":
        file.unlink()
    elif damage == "cut":
        file.write_bytes(content[: len(content) // 2])
    else:
        file.write_bytes(bytes([content[0] ^ 0x55]) + content[1:])
    assert checkpoint.load_newest(tmp_path).step == 5


def test_a_half_written_folder_is_no_checkpoint_and_the_next_save_clears_it(small, tmp_path):
    part = tmp_path / "checkpoints" / ".part-step-00000005"
    part.mkdir(parents=True)
    (part / "drafter.safetensors").write_bytes(b"half")
    with pytest.raises(CheckpointError, match="no whole checkpoint"):
        checkpoint.load_newest(tmp_path)
    checkpoint.save(tmp_path, 5, small, WEIGHTS, STATE)
    assert not part.exists()


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("drafter.sliding_window=9", "drafter.sliding_window 64, not 9"),
        ("seed=9", "seed 0, not 9"),
        ("optim.accumulation=2", "batches of a step 2, not 4"),
    ],
)
def test_another_geometry_is_refused_by_name(small, tmp_path, setting, said):
    checkpoint.save(tmp_path, 5, small, WEIGHTS, STATE)
    with pytest.raises(UsageError, match=f"made with {said}$|made with {said}; "):
        check_resumable(newest_stored(tmp_path), parse_overrides(small, [setting]))


def test_a_finished_run_is_not_resumed_unless_more_steps_are_asked_for(small, tmp_path):
    checkpoint.save(tmp_path, 12, small, WEIGHTS, STATE)
    stored = newest_stored(tmp_path)
    with pytest.raises(UsageError, match="all 12 steps are made already"):
        check_resumable(stored, small)
    check_resumable(stored, parse_overrides(small, ["optim.steps=13"]))


def test_a_checkpoint_of_a_newer_schema_is_refused(small, tmp_path):
    path, _ = checkpoint.save(tmp_path, 5, small, WEIGHTS, STATE)
    state = json.loads((path / "state.json").read_text())
    (path / "state.json").write_text(json.dumps({**state, "schema": 99}))
    with pytest.raises(CheckpointError, match="schema 99, expected 1"):
        checkpoint.load(path)


def test_a_directory_without_checkpoints_cannot_be_resumed(tmp_path):
    with pytest.raises(UsageError, match="no checkpoint to resume from"):
        newest_stored(tmp_path)


@pytest.fixture
def full_disk(tmp_path: Path):
    """A file system of 256 KiB."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    mount = tmp_path / "disk"
    mount.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(mount)],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode != 0:
        pytest.skip(f"cannot mount a tmpfs here: {made.stderr.strip()}")
    yield mount
    subprocess.run(["umount", str(mount)], check=True)


def test_a_full_disk_loses_nothing_that_was_there(small, full_disk):
    checkpoint.save(full_disk, 5, small, WEIGHTS, STATE)
    large = {"fc.weight": torch.zeros(200_000)}
    with pytest.raises(OSError, match="No space left"):
        checkpoint.save(full_disk, 10, small, large, STATE)
    assert checkpoint.load_newest(full_disk).step == 5
    assert [p.name for p in (full_disk / "checkpoints").iterdir()] == ["step-00000005"]
