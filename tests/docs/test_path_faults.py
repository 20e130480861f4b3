"""The table of faults in docs/transports.md has a row for each fault that the bench makes."""

from __future__ import annotations

from pathlib import Path

from e2e.paths.faults import APART, FAULTS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "transports.md"


def test_every_fault_of_the_way_has_its_row() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    for fault in (*FAULTS, *APART):
        assert any(row.startswith(f"| {fault.name} | {fault.made} |") for row in rows), fault.name
