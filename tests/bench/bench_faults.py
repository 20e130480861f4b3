"""Fault -> verdict, and fault -> stack files, in seconds, over SSH into a container.

    python tests/bench/bench_faults.py          # runs the end-to-end rows, one after another
    python tests/bench/bench_faults.py FIGURES  # prints the table of an earlier run

Each row is a test of tests/e2e on a real run; it writes its figures where DFLASH_FAULT_FIGURES
says. Prints a table and one JSON line; exit 1 when a test fails or a row is beyond the target.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TARGET_S = 20.0
BEYOND = {"exit hangs, foreign"}
"""Rows without that target: closing words are given 15 s before their hang is a fault."""


def measure(figures: Path) -> int:
    """Run the rows; pytest's exit code."""
    argv = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "tests/e2e",
        "-m",
        "e2e",
        "-p",
        "no:cacheprovider",
    ]
    env = {**os.environ, "DFLASH_FAULT_FIGURES": str(figures)}
    return subprocess.run(argv, cwd=ROOT, env=env, check=False).returncode


def read(figures: Path) -> list[dict[str, Any]]:
    """One object a row, in the order of the run."""
    return [json.loads(line) for line in figures.read_text(encoding="utf-8").splitlines()]


def show(rows: list[dict[str, Any]]) -> str:
    """The table as Markdown."""
    out = ["| fault | verdict | failure | subject | verdict, s | folder, s | stacks |"]
    out.append("|---|---|---|---|---|---|---|")
    for row in rows:
        kept = "-" if row["kept_s"] is None else f"{row['kept_s']:.1f}"
        names = f"{row['verdict']} | {row['failure']} | {row['subject']}"
        out.append(
            f"| {row['row']} | {names} | {row['verdict_s']:.1f} | {kept} | {row['stacks']} |"
        )
    return "\n".join(out)


def worst(rows: list[dict[str, Any]]) -> float:
    """Seconds of the slowest row that has the target, its folder included."""
    counted = [row for row in rows if row["row"] not in BEYOND]
    return max((max(row["verdict_s"], row["kept_s"] or 0.0) for row in counted), default=0.0)


def main() -> int:
    """Measure or read, print, judge."""
    code = 0
    if len(sys.argv) > 1:
        rows = read(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as folder:
            figures = Path(folder) / "figures.jsonl"
            figures.touch()
            code = measure(figures)
            rows = read(figures)
    print(show(rows))
    print(f"\nworst row {worst(rows):.1f} s (target {TARGET_S:.0f} s), {len(rows)} rows")
    print(json.dumps({"bench": "faults", "worst_s": worst(rows), "rows": rows}))
    return 1 if code or not rows or worst(rows) > TARGET_S else 0


if __name__ == "__main__":
    sys.exit(main())
