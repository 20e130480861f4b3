"""What a real Python hands on from its buffers is taken for a block, and little else is."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import pythons
from dflash_watch.detectors.log_buffered import Params, _is_block

PRINTS = """
import os, sys
path, buffering, more = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
size, grown, number = 0, [], 0
with open(path, "w", buffering=buffering) as file:
    while len(grown) < 4:
        number += 1
        line = "step %d/100000 loss %.4f tok/s %d" % (number, 3 / number, 9000 + number)
        print(line + "x" * more, file=file)
        now = os.stat(path).st_size
        if now != size:
            grown.append(now - size)
            size = now
print(*grown)
"""
FROM_3_14 = 131_072


@pytest.mark.parametrize("version", ["3.8", "3.12", "3.13", "3.14"])
@pytest.mark.parametrize("buffering", [-1, FROM_3_14])
@pytest.mark.parametrize("more", [0, 130, 400])
def test_what_a_python_writes_at_once_is_a_block(
    tmp_path: Path, version: str, buffering: int, more: int
) -> None:
    """Finding 10: 3.14 buffers 128 KiB by itself, any other when it is asked to."""
    words = [str(tmp_path / "log"), str(buffering), str(more)]
    python = pythons.python(version)
    told = subprocess.check_output([python, "-I", "-c", PRINTS, *words], text=True)
    assert [size for size in map(int, told.split()) if not _is_block(size, Params())] == []


@pytest.mark.parametrize("size", [0, 60, 5000, 9001, 65_000, 100_000, 140_000])
def test_what_comes_as_it_is_printed_is_no_block(size: int) -> None:
    assert not _is_block(size, Params())
