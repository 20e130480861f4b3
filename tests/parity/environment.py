"""An environment in which speculators 0.9.0 runs, borrowing torch and transformers from this one.

`python tests/parity/environment.py` makes it (about 15 s, 2 MB) and says where it is.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

SPECULATORS = "speculators==0.9.0"
BESIDE = ("loguru", "pydantic", "pydantic-settings")
FOLDER = Path(__file__).resolve().parents[2] / ".venv-parity"


class UnavailableError(Exception):
    """It could not be made; the package index's last words."""


def python_with_speculators(folder: Path = FOLDER) -> Path:
    """The interpreter of the environment, made when it is not there yet.

    Raises:
        UnavailableError: the packages could not be had.
    """
    folder.mkdir(exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        python, whole = folder / "bin" / "python", folder / ".whole"
        mark = f"{sys.executable} {sys.version} {SPECULATORS}"
        if not (whole.exists() and whole.read_text() == mark):
            venv.create(folder, with_pip=True)
            _borrow(folder)
            _install(python, "--no-deps", SPECULATORS)
            _install(python, *BESIDE)
            whole.write_text(mark)
    return python


def _borrow(folder: Path) -> None:
    """What is installed here is found there: torch is not fetched a second time."""
    here = dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib"))
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = folder / "lib" / version / "site-packages"
    (packages / "borrowed.pth").write_text("\n".join(here) + "\n")


def _install(python: Path, *words: str) -> None:
    done = subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": ""},
    )
    if done.returncode != 0:
        raise UnavailableError(
            f"{words[-1]}: {(done.stderr.strip() or 'no word').splitlines()[-1]}"
        )


if __name__ == "__main__":
    sys.stdout.write(f"{python_with_speculators()}\n")
