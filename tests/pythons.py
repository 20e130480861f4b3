"""Other Pythons of this machine: on PATH, in DFLASH_TEST_PYTHONS, and where tools put them."""

from __future__ import annotations

import functools
import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

VERSIONS = ("3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14")
VARIABLE = "DFLASH_TEST_PYTHONS"
FOLDERS = (
    "~/.pyenv/versions/*/bin",
    "~/.local/share/uv/python/*/bin",
    "/usr/local/bin",
    "/usr/bin",
)
ASK = "import sys; print('%d.%d' % sys.version_info[:2], sys.executable)"


def python(version: str) -> str:
    """An interpreter of this version; the test is skipped where there is none."""
    for path, its_version in interpreters():
        if its_version == version:
            return path
    pytest.skip(f"no Python {version} on PATH, in {VARIABLE} (paths, `:` between) or usual places")


def another() -> str:
    """The oldest interpreter that is none of ours, else ours."""
    by_age = sorted(interpreters(), key=lambda each: VERSIONS.index(each[1]))
    others = [path for path, _ in by_age if path != sys.executable]
    return others[0] if others else sys.executable


@functools.cache
def interpreters() -> tuple[tuple[str, str], ...]:
    """Path and version of each that starts, ours first; one file is listed once."""
    found = [(sys.executable, f"{sys.version_info[0]}.{sys.version_info[1]}")]
    candidates = {os.path.realpath(path): path for path in reversed([*_candidates()])}
    for path in reversed(candidates.values()):
        told = _ask(path)
        if told is not None and told[0] in VERSIONS and told[1] not in dict(found):
            found.append((told[1], told[0]))
    return tuple(found)


def _candidates() -> Iterator[str]:
    yield from filter(None, os.environ.get(VARIABLE, "").split(os.pathsep))
    names = [f"python{version}" for version in VERSIONS]
    yield from filter(None, map(shutil.which, names))
    for folder, name in itertools.product(FOLDERS, names):
        pattern = Path(folder).expanduser() / name
        yield from map(str, sorted(Path("/").glob(str(pattern).lstrip("/"))))
    yield str(Path(sys.base_prefix) / "bin" / "python3")


def _ask(path: str) -> tuple[str, str] | None:
    """Version and real place; None for a file that is none or a launcher without a Python."""
    try:
        asked = subprocess.run(
            [path, "-I", "-S", "-c", ASK], check=False, capture_output=True, text=True, timeout=60
        )
    except OSError:
        return None
    version, _, place = asked.stdout.strip().partition(" ")
    if asked.returncode != 0 or not place:
        return None
    return version, place if os.access(place, os.X_OK) else path  # it may live in another root
