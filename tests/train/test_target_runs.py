"""Training against a target from disk, as a user starts it."""

from __future__ import annotations

import json

from dflash_train import cli
from train import little_targets
from train.conftest import SMALL

REST = ("--preset", "tiny", "--no-watch", *SMALL)


def test_a_run_against_a_multimodal_wrapper_says_what_it_trains_on_and_resumes(tmp_path, capsys):
    folder, run_dir = tmp_path / "target", tmp_path / "run"
    little_targets.save(little_targets.hybrid_wrapper, folder)
    where = ("--run-dir", str(run_dir), "--target-devices", "cpux2")
    assert cli.main([*REST, "--target", str(folder), *where]) == 0
    kept = json.loads((run_dir / "run.json").read_text())["config"]["target"]
    assert kept["path"] == str(folder)
    assert kept["fingerprint"]
    assert f"fingerprint {kept['fingerprint']}" in (run_dir / "train.log").read_text()
    assert cli.main(["resume", "--no-watch", "--run-dir", str(run_dir), "optim.steps=14"]) == 0
    little_targets.save(little_targets.hybrid, folder)
    capsys.readouterr()
    assert cli.main(["resume", "--no-watch", "--run-dir", str(run_dir), "optim.steps=16"]) == 64
    assert "configuration or weights have changed" in capsys.readouterr().err


def test_a_bfloat16_target_teaches_a_drafter_that_computes_in_float32(tmp_path):
    little_targets.save(little_targets.hybrid, tmp_path / "target")
    where = ("--target", str(tmp_path / "target"), "--run-dir", str(tmp_path / "run"))
    assert cli.main([*REST, *where, "target.dtype=bfloat16", "optim.steps=3"]) == 0
    checks = json.loads((tmp_path / "run" / "run.json").read_text())["plan"]
    assert {check["name"] for check in checks if check["state"] != "ok"} <= {"agreement"}


def test_a_target_that_is_none_leaves_nothing_behind(tmp_path, capsys):
    little_targets.save(little_targets.encoder_decoder, tmp_path / "target")
    run_dir = tmp_path / "run"
    words = [*REST, "--target", str(tmp_path / "target"), "--run-dir", str(run_dir)]
    assert cli.main(words) == 64
    seen = capsys.readouterr()
    assert "is an encoder-decoder model" in seen.err
    assert len(seen.err.splitlines()) == 1
    assert not run_dir.exists()
