"""Training that goes on from a published drafter."""

from __future__ import annotations

import pytest
import torch
from dflash_train import cli, subjects
from dflash_train.errors import UsageError
from dflash_train.materials import make_untaught
from dflash_train.run import RunRequest, execute
from dflash_train.settings import resolve
from dflash_train.warm_start import settings_of
from dflash_train.workers import build_replica
from safetensors.torch import load_file
from train.conftest import SMALL

STEP = "step-00000002"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of two steps of a drafter whose shapes are not the preset's."""
    run_dir = tmp_path_factory.mktemp("trained") / "run"
    words = [*SMALL, "target.pretrain_steps=1", "optim.steps=2", "drafter.num_layers=1",
             "drafter.layer_types=full_attention", "drafter.intermediate_size=96"]  # fmt: skip
    config = resolve("tiny", None, words)
    request = RunRequest(config=config, run_dir=run_dir, command=("x",), watch=False)
    assert execute(request).code == 0
    return run_dir


@pytest.fixture(scope="module", params=["zlab", "speculators"])
def published(request, trained, tmp_path_factory):
    out = tmp_path_factory.mktemp("published") / request.param
    words = ["--run-dir", str(trained), "--format", request.param, "--dtype", "float32"]
    assert cli.main(["export", *words, "--out", str(out)]) == 0
    return out


def test_a_new_run_begins_with_the_published_weights_and_shapes(trained, published):
    config = resolve("tiny", None, [f"drafter.init={published}"], settings_of(published))
    assert (config.drafter.num_layers, config.drafter.intermediate_size) == (1, 96)
    replica = build_replica(config, make_untaught(config), None, "cpu")
    known = load_file(trained / "checkpoints" / STEP / "drafter.safetensors")
    assert {each.dtype for each in replica.weights().values()} == {torch.float32}
    assert replica.weights().keys() == known.keys()
    assert all(torch.equal(view, known[name]) for name, view in replica.weights().items())


def test_a_run_that_went_on_is_resumed_without_what_it_began_from(published, tmp_path):
    copied = tmp_path / "copied"
    copied.mkdir()
    for file in published.iterdir():
        if file.is_file():
            (copied / file.name).write_bytes(file.read_bytes())
    words = ["--preset", "tiny", "--no-watch", "--init", str(copied), "--run-dir"]
    run_dir = tmp_path / "run"
    assert cli.main([*words, str(run_dir), *SMALL, "optim.steps=1"]) == 0
    assert "drafter: goes on from" in (run_dir / "train.log").read_text()
    for file in copied.iterdir():
        file.unlink()
    assert cli.main(["resume", "--no-watch", "--run-dir", str(run_dir), "optim.steps=2"]) == 0


def test_shapes_that_do_not_fit_are_named(published):
    config = resolve("tiny", None, [f"drafter.init={published}"])
    with pytest.raises(UsageError, match=r"--init .*: layers.0.mlp.down_proj.weight is \[64, 96\]"):
        build_replica(config, make_untaught(config), None, "cpu")


def test_a_drafter_of_another_target_is_refused_before_anything_is_written(
    published, tmp_path, capsys
):
    words = ["--preset", "tiny", "--init", str(published), "--run-dir", str(tmp_path / "run")]
    assert cli.main([*words, "target.hidden_size=32"]) == 64
    seen = capsys.readouterr().err
    assert "hidden size 64, the target's is 32" in seen
    assert len(seen.splitlines()) == 1
    assert not (tmp_path / "run").exists()


def test_shapes_that_do_not_fit_are_refused_before_anything_is_written(published, tmp_path, capsys):
    words = ["--preset", "tiny", "--init", str(published), "--run-dir", str(tmp_path / "run")]
    assert cli.main([*words, "drafter.intermediate_size=128"]) == 64
    seen = capsys.readouterr().err
    assert "is [64, 96] there, [64, 128] in this run; leave out drafter.*" in seen
    assert len(seen.splitlines()) == 1
    assert not (tmp_path / "run").exists()


def test_a_folder_that_is_no_drafter_is_one_line(tmp_path, capsys):
    words = ["--preset", "tiny", "--run-dir", str(tmp_path / "run"), "--init"]
    assert cli.main([*words, str(tmp_path / "nowhere")]) == 64
    (tmp_path / "empty").mkdir()
    assert cli.main([*words, str(tmp_path / "empty")]) == 64
    assert len(capsys.readouterr().err.splitlines()) == 2
    assert not (tmp_path / "run").exists()


def test_a_published_drafter_is_evaluated_over_its_target(trained, tmp_path):
    out = tmp_path / "zlab"
    words = ["--run-dir", str(trained), "--format", "zlab", "--dtype", "float32"]
    assert cli.main(["export", *words, "--out", str(out)]) == 0
    subject = subjects.of_published(out, str(out / "target"))
    run = subjects.of_run(trained, None)
    same = [f"data.{key}={value}" for key, value in (("buckets", "64,96,128"), ("rows", 2))]
    settings = [*same, "eval.prompts=2", "eval.new_tokens=12"]
    found = [
        subjects.evaluate(
            subjects.with_settings(each, settings, None, "cpu"), all_documents=False
        ).acceptance
        for each in (subject, run)
    ]
    assert found[0].steps > 0
    assert found[0] == found[1]
