"""What every row of the fault table must show, and how long it took."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from e2e.watched import Kept, Line, Watch

FIGURES = "DFLASH_FAULT_FIGURES"
"""Environment: a file that gets one JSON object a row (`tests/bench/bench_faults.py`)."""


def check_kept(
    kept: Kept, verdict: str | set[str], failure: str, subject: str | None, samples: int
) -> None:
    """Names in the incident, and its stacks: there when the table says so, explained when not."""
    told = kept.verdict
    found = (told["verdict"], told["failure"], told["subject"])
    assert found == (verdict, failure, subject), kept.report
    assert {"report.md", "window.jsonl.gz", "log-tail.txt", "processes.txt"} <= kept.files
    assert len(kept.stacks()) == samples, kept.report
    assert ("stacks.diff.txt" in kept.files) is (samples > 1)
    assert kept.folder.name.endswith(f"-{failure}")


def check_quiet_afterwards(watch: Watch, kept: Sequence[Kept], *on_the_way: str) -> None:
    """No second incident for the same thing, and nothing beside it was or is alarmed.

    Args:
        watch: of the run.
        kept: the incidents there must be.
        on_the_way: failures that are true until more is known.
    """
    watch.goes_on(7)
    told, last = watch.told(), watch.lines[-1]
    assert [one.folder for one in watch.incidents()] == sorted(one.folder for one in kept), told
    assert last["failure"] == kept[-1].verdict["failure"], told
    assert last["subject"] == kept[-1].verdict["subject"], told
    alarmed = {line["failure"] for line in watch.lines if line["severity"] != "info"}
    assert alarmed - {*on_the_way} == {one.verdict["failure"] for one in kept}, told


def measure(row: str, watch: Watch, verdict: str, failure: str, fault_t: float) -> None:
    """Seconds from the fault to its name, and to the folder with the stacks; never asserted."""
    path = os.environ.get(FIGURES)
    if path is None:
        return

    def is_it(line: Line) -> bool:
        return (line["verdict"], line["failure"]) == (verdict, failure)

    told = [(t, line) for t, line in zip(watch.read_t, watch.lines, strict=False) if is_it(line)]
    # The same may have been said before, of an earlier fault.
    read_t, first = next((one for one in told if one[0] >= fault_t), told[-1])
    kept = next((one for one in watch.incidents() if one.verdict["failure"] == failure), None)
    kept_s = None if kept is None else round(kept.folder.stat().st_ctime - fault_t, 1)
    figures = {
        "row": row, "verdict": verdict, "failure": failure,
        "subject": first["subject"], "verdict_s": round(read_t - fault_t, 1), "kept_s": kept_s,
        "stacks": 0 if kept is None else len(kept.stacks()),
    }  # fmt: skip
    with Path(path).open("a", encoding="utf-8") as out:
        out.write(json.dumps(figures) + "\n")
