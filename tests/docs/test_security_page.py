"""What SECURITY.md names as a test is there, and has tests in it."""

from __future__ import annotations

import re

import pytest
from commands_in_docs import ROOT

PAGE = (ROOT / "SECURITY.md").read_text("utf-8")
ROWS = [line.split("|")[1:4] for line in PAGE.splitlines() if line.startswith("| ")]
TABLE = ROWS[[row[0].strip() for row in ROWS].index("threat") + 1 :]


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row[0].strip()[:40])
def test_every_threat_names_tests_that_exist_or_says_that_there_is_none(row: list[str]) -> None:
    told = row[2].strip()
    if told in ("none", "the same"):
        return
    named = re.findall(r"`([\w/.-]+)`", told)
    assert named or "the same" in told
    for one in named:
        path = ROOT / "tests" / one
        files = [path] if path.is_file() else list(path.rglob("test_*.py"))
        assert any("def test_" in file.read_text("utf-8") for file in files), one


def test_the_table_is_whole() -> None:
    assert len(TABLE) >= 17
