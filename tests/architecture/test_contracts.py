"""The import contracts of pyproject.toml hold, and the check of them bites."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = [str(ROOT / name) for name in ("dflash", "watchdog", "tui")]
LINT = "import sys; from importlinter.cli import lint_imports; "
LINT += "sys.exit(lint_imports(config_filename=sys.argv[1], no_cache=True))"


def lint_imports(*folders: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", LINT, str(ROOT / "pyproject.toml")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(folders), "COLUMNS": "200"}
    return subprocess.run(
        command, cwd=folders[0], env=environment, capture_output=True, text=True, check=False
    )


def test_every_import_contract_of_the_project_holds():
    shown = lint_imports(*FOLDERS)
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert "0 broken" in shown.stdout


def layers() -> list[str]:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (law,) = [one for one in contracts["contracts"] if one["type"] == "layers"]
    return [name.strip() for layer in law["layers"] for name in layer.split("|")]


def test_an_import_against_the_direction_breaks_a_contract(tmp_path):
    for name in ("dflash_events", "dflash_train", "dflash_tui", "dflash_watch"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("")
    for name in layers():
        text = "import dflash_watch.live\n" if name == "window" else ""
        (tmp_path / "dflash_watch" / f"{name}.py").write_text(text)
    shown = lint_imports(str(tmp_path))
    assert shown.returncode != 0
    assert "dflash_watch.window is not allowed to import dflash_watch.live" in shown.stdout
