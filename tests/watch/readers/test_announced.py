"""Signatures are found the same whether all are tried or only those that a line announces."""

from __future__ import annotations

from pathlib import Path

from dflash_watch.playbooks import load_playbooks
from dflash_watch.readers.signatures import Matcher

TESTS = Path(__file__).parents[2]
LOGS = [*TESTS.rglob("*.log"), *TESTS.glob("cases/*/log.txt"), *TESTS.glob("cases/*/stacks.txt")]


def tried_one_by_one(matcher: Matcher, line: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for rule in matcher._single:
        failure = rule.signature.failure
        if failure not in found and rule.pattern.search(line):
            found[failure] = rule.signature.pattern
    return found


def test_no_signature_is_missed_in_any_recorded_line():
    signatures = [one for book in load_playbooks().values() for one in book.signatures()]
    hits = 0
    for where in ("log", "end", "stacks"):
        matcher = Matcher(signatures, where)
        for path in LOGS:
            for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
                found = {one.signature.failure: one.signature.pattern
                         for one in matcher.in_line(line)}  # fmt: skip
                assert found == tried_one_by_one(matcher, line), line
                hits += len(found)
    assert hits > 50


def test_an_ordinary_line_is_hardly_looked_at():
    signatures = [one for book in load_playbooks().values() for one in book.signatures()]
    matcher = Matcher(signatures)
    tried = matcher._announced_in("step 100/100000 loss 2.34 6000 tok/s")
    assert len(tried) <= len(matcher._single) / 8
