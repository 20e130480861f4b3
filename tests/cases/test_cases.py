"""Real public failures: how many get the verdict and a failure that counts as right."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path

import msgspec
import pytest
import yaml
from dflash_watch.model import Snapshot
from dflash_watch.pasted.evidence import Evidence, Observed
from dflash_watch.pasted.files import read_folder
from dflash_watch.pasted.judge import judge_pasted
from dflash_watch.playbooks import load_playbooks

FOLDERS = sorted(path.parent for path in Path(__file__).parent.glob("*/expected.yaml"))
T0 = 1_790_000_000.0
books = cache(load_playbooks)


class Result(msgspec.Struct, frozen=True):
    name: str
    score: str
    verdict: bool
    failure: bool
    said: str


def without_observed(evidence: Evidence) -> Evidence:
    if evidence.context is None:
        return evidence
    context = msgspec.structs.replace(evidence.context, observed=Observed())
    return msgspec.structs.replace(evidence, context=context)


@cache
def results(*, observed: bool) -> tuple[Result, ...]:
    return tuple(judged(folder, observed=observed) for folder in FOLDERS)


def judged(folder: Path, *, observed: bool) -> Result:
    expected = yaml.safe_load((folder / "expected.yaml").read_text())
    evidence = read_folder(folder)
    seen = judge_pasted(evidence if observed else without_observed(evidence), books(), T0)
    return Result(
        name=folder.name,
        score=expected["score"],
        verdict=seen.verdict == expected["verdict"],
        failure=seen.failure in expected["failure_any_of"],
        said=f"{seen.verdict}/{seen.failure}, right: {expected['verdict']}/"
        f"{'|'.join(expected['failure_any_of'])}",
    )


def report(found: tuple[Result, ...]) -> str:
    rows = [f"{one.name}: {one.said}" for one in found if not (one.verdict and one.failure)]
    for score in ("full", "verdict", "low"):
        of = [one for one in found if one.score == score]
        rows.append(
            f"{score}: {len(of)} cases, verdict right in {sum(one.verdict for one in of)}, "
            f"failure in {sum(one.failure for one in of)}"
        )
    return "\n".join(rows)


def shares(found: tuple[Result, ...]) -> tuple[float, float]:
    full = [one for one in found if one.score == "full"]
    count = len(full)
    return sum(one.verdict for one in full) / count, sum(one.failure for one in full) / count


@pytest.mark.parametrize(("observed", "least"), [(True, (0.95, 0.90)), (False, (0.85, 0.85))])
def test_most_cases_get_the_right_verdict_and_failure(observed, least, capsys):
    found = results(observed=observed)
    with capsys.disabled():
        print(f"\nobserved {'given' if observed else 'taken out'}\n{report(found)}")
    verdict, failure = shares(found)
    assert (verdict >= least[0], failure >= least[1]) == (True, True), report(found)


def test_the_cases_are_there_and_most_of_them_are_to_be_trusted():
    assert len(FOLDERS) >= 58
    assert Counter(one.score for one in results(observed=True))["full"] >= 40


def test_prose_for_people_is_never_read_for_meaning(tmp_path):
    folder = FOLDERS[0]
    for path in folder.glob("*"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    context = yaml.safe_load((folder / "context.yaml").read_text())
    context["context"] = "CUDA out of memory. GPU has fallen off the bus. No space left on device."
    (tmp_path / "context.yaml").write_text(yaml.safe_dump(context))
    before, after = (judge_pasted(read_folder(one), books(), T0) for one in (folder, tmp_path))
    assert msgspec.to_builtins(after) == msgspec.to_builtins(before)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_every_reading_says_why_and_what_is_missing(folder):
    seen: Snapshot = judge_pasted(read_folder(folder), books(), T0)
    assert seen.summary
    assert any(one.kind == "for" for one in seen.evidence)
    assert any(one.kind == "missing" for one in seen.evidence)
    assert seen.failure != "unknown" or seen.next
