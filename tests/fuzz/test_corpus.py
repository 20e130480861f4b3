"""Every input that fuzzing ever kept is read without a word: nothing but what is documented."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from parsers import PARSERS, kept


@pytest.mark.parametrize("name", PARSERS)
def test_what_fuzzing_kept_is_read_without_a_word(name: str) -> None:
    for path in kept(name):
        try:
            PARSERS[name].read(path.read_bytes())
        except Exception as error:
            raise AssertionError(f"corpus/{name}/{path.name}") from error


@pytest.mark.parametrize("name", PARSERS)
def test_the_ends_of_the_world_are_read_without_a_word(name: str) -> None:
    for data in (b"", b"\0", b"\xff" * 3000, b"[" * 3000, bytes(range(256)) * 8, b"\n" * 5000):
        PARSERS[name].read(data)
