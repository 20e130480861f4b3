"""A pytest plugin: scenarios run with an engine that lies about one failure, and have to notice.

Of each row of the table, the scenario that names the failure runs with an engine that never says
it, and its look-alike with an engine that says nothing else. Who passes all the same asserts
nothing of that failure. The outcome is written as JSON to the file that `OUTCOME` names.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from contract.scenario_table import TABLE, TOLD_BESIDE
from dflash_watch.engine import Engine
from dflash_watch.model import Candidate, Snapshot

NEVER, ALWAYS = "never", "always"
WANTED = {
    (test, f"{failure}/{mode}")
    for failure, tests in TABLE.items()
    for test, mode in zip(tests, (NEVER, ALWAYS), strict=True)
}
OUTCOME = "DFLASH_MUTANTS_OUTCOME"
outcome: dict[str, str] = {}


def liar(failure: str, mode: str) -> Any:
    """`Engine.advance` that never, or always, names that failure."""
    honest = Engine.advance
    instead = "healthy" if failure == "unknown" else "unknown"

    def advance(self: Engine, record: Any) -> Snapshot:
        snapshot = honest(self, record)
        if mode == ALWAYS:
            said = Candidate(failure=failure, score=1.0, subject="run")
            return msgspec.structs.replace(snapshot, failure=failure, candidates=(said,))
        if failure in TOLD_BESIDE:
            others = tuple(one for one in snapshot.candidates if one.failure != failure)
            return msgspec.structs.replace(snapshot, candidates=others)
        if snapshot.failure == failure:
            return msgspec.structs.replace(snapshot, failure=instead)
        return snapshot

    return advance


@pytest.fixture(autouse=True)
def mutant(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Engine, "advance", liar(*request.param.split("/")))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    function = f"{metafunc.definition.path.name}::{metafunc.definition.originalname}"
    rows = sorted({row for test, row in WANTED if test.split("[")[0] == function})
    metafunc.parametrize("mutant", rows, indirect=True, ids=rows)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = [item for item in items if _test_and_row(item) in WANTED]


def _test_and_row(item: pytest.Item) -> tuple[str, str]:
    """What the table calls it, and the row that it runs for."""
    row = item.callspec.params["mutant"] if isinstance(item, pytest.Function) else ""
    name = item.name.replace(f"-{row}]", "]").replace(f"[{row}-", "[").replace(f"[{row}]", "")
    return f"{item.path.name}::{name}", row


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    test, row = _test_and_row(item)
    outcome[f"{row} {test}"] = "passed"
    try:
        yield
    except AssertionError:
        outcome[f"{row} {test}"] = "noticed"


def pytest_sessionfinish() -> None:
    Path(os.environ[OUTCOME]).write_text(json.dumps(outcome))
