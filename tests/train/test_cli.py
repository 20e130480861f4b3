"""The command line: one clear line for each mistake, and nothing heavy for --help."""

from __future__ import annotations

import subprocess
import sys

import pytest
from dflash_train import cli
from dflash_train.plan.check import CHECKS
from train.conftest import SMALL

USAGE = [
    (["--preset", "tny", "--run-dir", "x"], "--preset tny: unknown; did you mean tiny?"),
    (["--run-dir", "x"], "nothing to train; give --target, --preset tiny or --config FILE"),
    (["--preset", "tiny"], "--run-dir: missing"),
    (["--preset", "tiny", "--run-dir", "x", "optim.stps=1"], "did you mean steps?"),
    (["--preset", "tiny", "optim.stps=1", "--run-dir", "x"], "did you mean steps?"),
    (["--target", "nowhere/at/all", "--run-dir", "x"], "target nowhere/at/all: no such folder"),
    (["--preset", "tiny", "--run-dir", "x", "--target-devices", "cuda:3-1"], "names no devices"),
    (["--preset", "tiny", "--run-dir", "x", "--drafter-devices", "gpu0"], "such as cpu, cuda:0"),
    (["--data", "chats.jsonl", "--run-dir", "x"], "nothing to train; give --target"),
    (["resum", "--run-dir", "x"], "resum: expected section.key=value or a command; did you mean"),
    (["resume", "--run-dir", "nowhere"], "no checkpoint to resume from"),
    (["--prest", "tiny"], "unrecognized arguments: --prest"),
    (["--preset", "tiny", "--run-dir", "/proc/nope"], "--run-dir /proc/nope: "),
    (["--preset", "tiny", "--run-dir", "x", "--config", "nowhere.toml"], "No such file"),
]


@pytest.mark.parametrize(("words", "said"), USAGE)
def test_a_usage_error_is_one_line_and_exit_64(words, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(words) == 64
    seen = capsys.readouterr()
    assert said in seen.err
    assert len(seen.err.splitlines()) == 1
    assert seen.out == ""
    assert list(tmp_path.iterdir()) == []


def test_a_device_that_is_not_there_is_a_usage_error(capsys, tmp_path):
    words = ["--preset", "tiny", "--no-watch", "--run-dir", str(tmp_path / "run")]
    assert cli.main([*words, "--drafter-devices", "cuda:97"]) == 64
    assert "drafter.devices: no cuda:97 here, expected one of cpu" in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--help", "--version"])
def test_help_and_version_load_neither_torch_nor_transformers(flag):
    code = (
        "import sys; from dflash_train import cli\n"
        f"try: cli.main([{flag!r}])\n"
        "except SystemExit as end: assert not end.code\n"
        "assert not {'torch', 'transformers', 'numpy'} & set(sys.modules), 'heavy'"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "dflash-train" in done.stdout


def test_output_that_cannot_be_written_is_one_line(tmp_path):
    code = "import sys; from dflash_train import cli; sys.exit(cli.main(['plan', *sys.argv[1:]]))"
    words = [sys.executable, "-c", code, "--preset", "tiny", *SMALL]
    with open("/dev/full", "w") as full:  # noqa: PTH123  (a device)
        done = subprocess.run(
            words,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env={"PYTHONPATH": ":".join(sys.path), "OMP_NUM_THREADS": "1"},
        )
    assert done.returncode == 1
    *steps, said = done.stderr.splitlines()
    assert said.startswith("dflash-train: standard output: No space left on device")
    assert steps[0] == "plan: loading the target and its data"
    assert [step.split()[1] for step in steps[1:]] == list(CHECKS)
