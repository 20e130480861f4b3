"""Probes over recorded trees: tests/recorded/PROBE/CASE, each with what must come out of it.

A probe has the five cases `healthy`, `broken`, `absent`, `truncated`, `refused`; one that lacks any
fails here. `expected.json` holds the answer.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from dflash_watch.agent.probes import kernel
from dflash_watch.agent.probes.host import HostReader
from dflash_watch.agent.probes.processes import ProcessReader
from dflash_watch.agent.probes.threads import ThreadReader

RECORDED = Path(__file__).parents[2] / "recorded"
CASES = {"healthy", "broken", "absent", "truncated", "refused"}
PID = 4242
NOW_BOOT_S = 1e6


def processes(case: Path) -> Any:
    return ProcessReader(str(case / "proc")).read(PID, NOW_BOOT_S)


def threads(case: Path) -> Any:
    reader = ThreadReader(str(case / "proc"))
    found = reader.read([PID], with_switches=True)
    reader.close()
    return list(found)


def host(case: Path) -> Any:
    sample = HostReader(str(case / "proc"), str(case / "cgroup")).read(PID)
    return {key: value for key, value in sample.items() if key not in ("hostname", "cpus")}


def kernel_lines(case: Path) -> Any:
    lines = (case / "kmsg").read_bytes().decode("utf-8", "replace").splitlines()
    parsed = [kernel.parse(line) for line in lines]
    return [record for record in parsed if record and kernel.MATTERS.search(record[1])]


PROBES: dict[str, Callable[[Path], Any]] = {
    "processes": processes,
    "threads": threads,
    "host": host,
    "kernel": kernel_lines,
}


def cases() -> list[Path]:
    return sorted(path for path in RECORDED.glob("*/*") if path.parent.name in PROBES)


@pytest.mark.parametrize("case", cases(), ids=lambda path: f"{path.parent.name}-{path.name}")
def test_a_recorded_tree_gives_what_was_expected(case: Path):
    found = json.loads(json.dumps(PROBES[case.parent.name](case)))
    assert found == json.loads((case / "expected.json").read_text())


@pytest.mark.parametrize("probe", sorted(PROBES))
def test_each_probe_has_all_five_cases(probe):
    assert {path.name for path in (RECORDED / probe).iterdir()} == CASES
