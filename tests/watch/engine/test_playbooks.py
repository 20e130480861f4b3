"""The loader of playbooks refuses what the diagnosis could not use."""

from __future__ import annotations

import re

import pytest
from contract.test_playbooks import FAILURES
from dflash_watch.detectors import catalogue
from dflash_watch.errors import UsageError
from dflash_watch.playbooks import GROUPS, SECTIONS, load_playbooks, parse_playbook

GOOD = """+++
title = "x"
severity = "critical"
verdicts = ["stalled"]
requires = ["work-still"]
+++
## Meaning
a
## Diagnosis
b
"""


def test_front_matter_and_sections_are_read():
    book = parse_playbook("x", GOOD)
    assert book.requires == ("work-still",)
    assert book.sections == {"Meaning": "a", "Diagnosis": "b"}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("## Meaning\n", "front matter"),
        (GOOD.replace('"critical"', '"terrible"'), "terrible"),
        (GOOD.replace('["stalled"]', '["hanging"]'), "hanging"),
        (GOOD.replace("requires", "require"), "unknown key 'require'"),
        (GOOD.replace('title = "x"', "title = "), "playbook x"),
        (GOOD.replace("+++\n## M", "[[signature]]\nwhere = 3\n+++\n## M"), "playbook x"),
    ],
)
def test_what_is_no_playbook_is_refused_with_its_name_and_reason(text, told):
    with pytest.raises(UsageError, match=re.escape(told)):
        parse_playbook("x", text)


def test_every_symptom_that_a_playbook_names_has_a_detector_or_a_signature():
    books = load_playbooks()
    families = ("logged", "stacked", "log-end")
    known = set(catalogue()) | set(FAILURES)
    known |= {f"{one}-{name}" for one in families for name in FAILURES}
    known |= {"gpu-memory-unowned", "log-without-steps"}  # of pasted evidence
    for name, book in books.items():
        named = {one for group in book.requires for one in group.split("|")}
        named |= {*book.supports, *book.contradicts}
        assert named <= known, name
        grouped = {one for group in GROUPS.values() for one in group}
        assert set(book.explains) - grouped <= known | set(books) | {"exit-hang"}, name
        assert set(SECTIONS) <= set(book.sections), name


def test_every_symptom_is_used_by_some_playbook():
    used: set[str] = set()
    for book in load_playbooks().values():
        used |= {one for group in book.requires for one in group.split("|")}
        used |= {*book.supports, *book.contradicts, *book.explains}
    assert set(catalogue()) - {"logged"} <= used
