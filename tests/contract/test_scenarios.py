"""Each failure is named first by some scenario, and by its look-alike never."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from contract.mutants import OUTCOME, WANTED
from contract.scenario_table import TABLE

ROOT = Path(__file__).parents[2]


def test_every_playbook_has_a_scenario_that_names_it_and_a_look_alike() -> None:
    assert set(TABLE) == {path.stem for path in (ROOT / "playbooks").glob("*.md")}
    assert [name for name, (first, second) in TABLE.items() if first == second] == []


@pytest.mark.slow
def test_these_scenarios_notice_an_engine_that_never_or_always_names_the_failure(
    tmp_path: Path,
) -> None:
    files = sorted({f"tests/scenarios/{test.split('::')[0]}" for test, _ in WANTED})
    told = tmp_path / "outcome.json"
    said = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "contract.mutants",
         *files],
        cwd=ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests"), OUTCOME: str(told)},
    )  # fmt: skip
    assert told.exists(), said.stdout + said.stderr
    found = json.loads(told.read_text())
    assert found == dict.fromkeys((f"{row} {test}" for test, row in WANTED), "noticed")
