"""`make install` against a Python that only notes what it is asked: order, recovery, refusals."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import pythons

ROOT = Path(__file__).resolve().parents[2]
NOTING = """#!/bin/sh
echo "$*" >> {calls}
case "$*" in
  "-c "*) exec {real} "$@" ;;
  --version) exec {real} --version ;;
  "-m venv "*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
  *" --editable "*) test ! -e {broken} ;;
esac
"""

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


class Setup:
    """A copy of the two files that set-up reads, and the noting Python."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.calls, self.broken = folder, folder / "calls", folder / "broken"
        for name in ("Makefile", "pyproject.toml"):
            shutil.copy(ROOT / name, folder)
        self.python = folder / "noting-python"
        self.python.write_text(
            NOTING.format(calls=self.calls, real=sys.executable, broken=self.broken)
        )
        self.python.chmod(0o755)

    def make(self, *words: str) -> subprocess.CompletedProcess[str]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
        return subprocess.run(
            ["make", "install", f"PYTHON={self.python}", *words],
            cwd=self.folder, env=kept, capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip

    def asked(self) -> list[str]:
        """What was asked since the last time: environment, torch, the rest."""
        lines = self.calls.read_text().splitlines() if self.calls.exists() else []
        self.calls.unlink(missing_ok=True)
        kinds = {"-m venv": "environment", "torch==": "torch", "--editable": "toolkit"}
        return [kind for line in lines for mark, kind in kinds.items() if mark in line]


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup(tmp_path)


def test_torch_is_installed_alone_and_before_everything_else(setup: Setup):
    shown = setup.make()
    assert (shown.returncode, shown.stderr) == (0, "")
    assert setup.asked() == ["environment", "torch", "toolkit"]


def test_a_second_time_nothing_is_done(setup: Setup):
    setup.make()
    setup.asked()
    assert setup.make().returncode == 0
    assert setup.asked() == []


def test_set_up_that_broke_off_goes_on_where_it_stood(setup: Setup):
    setup.broken.touch()
    assert setup.make().returncode != 0
    assert setup.asked() == ["environment", "torch", "toolkit"]
    setup.broken.unlink()
    assert setup.make().returncode == 0
    assert setup.asked() == ["toolkit"]


def test_changed_requirements_are_installed(setup: Setup):
    setup.make()
    setup.asked()
    later = (setup.folder / ".venv" / "installed").stat().st_mtime + 10
    os.utime(setup.folder / "pyproject.toml", (later, later))
    assert setup.make().returncode == 0
    assert setup.asked() == ["toolkit"]


@pytest.mark.parametrize("what", ["too old", "not there", "no Python"])
def test_a_wrong_python_is_one_line_that_says_what_to_type(setup: Setup, what: str):
    python = {"too old": lambda: pythons.python("3.8"), "not there": lambda: "/nowhere/python",
              "no Python": lambda: "false"}[what]()  # fmt: skip
    shown = setup.make(f"PYTHON={python}")
    assert shown.returncode != 0
    line, of_make = shown.stderr.splitlines()
    assert line.startswith(f"{python} is ")
    assert line.endswith("need Python 3.11 or newer; call: make PYTHON=/path/to/python3.11")
    assert of_make.startswith("make: ***")
    assert not (setup.folder / ".venv").exists()
